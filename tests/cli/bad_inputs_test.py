#!/usr/bin/python3
"""Mistakes that people make when they fine-tune and predict: each gets one sentence and status 2.

usage: bad_inputs_test.py PROGRAM
"""
import glob
import os
import pickle
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

TRAIN = "train --model fashion_cnn --image 16 --steps 1 --batch 4"
FOLDER = TRAIN + " --data folder:photos"
FACES = "train --model mobilefacenet --image 32 --steps 1 --batch 4"

NOISE = bytes(number * number * 7 % 251 for number in range(3000))

# The command, and what its sentence has to say.
CASES = [
    ("train --model resnt50 --steps 1", "did you mean 'resnet50'"),
    ("train --steps 1", "--model is missing"),
    (TRAIN + " --load-weights nothing.pth", "nothing.pth"),
    (TRAIN + " --load-weights empty.pth", "is empty"),
    (TRAIN + " --load-weights page.pth", "is a page of the web"),
    (TRAIN + " --load-weights pointer.pth", "git lfs pull"),
    (TRAIN + " --load-weights half.safetensors", "half.safetensors"),
    (TRAIN + " --load-weights evil.pth", "evil.pth"),
    (TRAIN + " --load-weights whole.safetensors --classes 3", "--new-layers auto"),
    ("train --model resnet18 --image 32 --steps 1 --batch 4 --load-weights whole.safetensors "
     "--new-layers auto", "another network"),
    (TRAIN + " --new-layers auto", "--load-weights"),
    (TRAIN + " --fine-tune nothing.pth", "nothing.pth"),
    (TRAIN + " --freeze layr1", "did you mean 'layer1'"),
    (TRAIN + " --freeze '*'", "nothing to train"),
    (TRAIN + " --train-only head", "fits no layer"),
    (TRAIN + " --lr-scale fc", "PATTERN=FACTOR"),
    (TRAIN + " --layer-decay 0", "--layer-decay"),
    ("train --model alexnet --image 64 --steps 1 --freeze-norms", "no batch norms"),
    (FOLDER + " --valid-share 1.5", "--valid-share"),
    (FOLDER + " --valid-share 0.5 --eval-data folder:photos", "choose one"),
    (TRAIN + " --valid-share 0.5", "--valid-share"),
    (FOLDER + " --valid-share 0.5 --metric accuracy", "top1"),
    (FOLDER + " --valid-share 0.5 --patience -1", "--patience"),
    (TRAIN + " --ema 1", "--ema"),
    (TRAIN + " --ema 0.9 --placement 0:0.0:1 --schedule 1f1b --oversubscribe", "--ema"),
    (FOLDER + " --class-weights few.txt", "no weight for class"),
    (FOLDER + " --class-weights strange.txt", "no class of the data"),
    (FOLDER + " --class-weights words.txt", "is no weight"),
    (TRAIN + " --class-weights balanced", "--class-weights"),
    (FOLDER + " --sampler balance", "did you mean 'balanced'"),
    (FOLDER + " --mixup -1", "--mixup"),
    (FOLDER + " --rand-augment 2", "such as 2,9"),
    (FOLDER + " --colour-jitter 1,2", "--colour-jitter"),
    (FOLDER + " --random-erasing 2", "--random-erasing"),
    (FOLDER + " --augment fotos", "choose auto, photo"),
    (FOLDER + " --mean 1,2", "--mean"),
    (FOLDER + " --std 0", "--std"),
    (TRAIN + " --lr-warmup 1x", "epochs (3e)"),
    (TRAIN + " --lr-schedule step --lr-milestones 3e,100", "--lr-milestones"),
    ("train --config nothing.yaml", "nothing.yaml"),
    ("train --config wrong.yaml", "did you mean"),
    ("train --config broken.yaml", "broken.yaml"),
    (TRAIN + " --data folder:nowhere", "nowhere"),
    ("train --model resnet18 --head arcface --steps 1", "gives no embeddings"),
    (FACES + " --eval-verification nothing.bin", "nothing.bin"),
    (FACES + " --eval-verification words.txt", "words.txt"),
    (FACES + " --eval-verification pairs.bin,copy/pairs.bin", "two verification sets"),
    (FACES + " --eval-verification pairs.bin --metric top1", "--eval-verification has"),
    (FACES + " --eval-verification pairs.bin --metric verification/lfw", "is called 'lfw'"),
    (FACES + " --metric verification", "--metric"),
    (TRAIN + " --eval-verification pairs.bin", "embeddings"),
    (TRAIN + " --head-lr 1", "has no head"),
    (TRAIN + " --clip-norm 1 --clip-backbone", "has no head"),
    (FACES + " --clip-backbone", "without --clip-norm"),
    (FACES + " --head adaface --margin 1,2,3", "one or two"),
    (FACES + " --head magface --margin 1", "takes two"),
    (FACES + " --head arcfaces", "did you mean 'arcface'"),
    (FACES + " --head arcface --head-filter 2", "--head-filter"),
    (FACES + " --head curricularface --head-parallel pfc", "looks at all classes"),
    (FACES + " --head adaface --microbatches 2", "whole steps"),
    (FACES + " --head arcface --label-smoothing 0.1", "margin head"),
    (FACES + " --global-batch 5 --devices 2 --oversubscribe", "--global-batch"),
    (TRAIN + " --data recordio:a.rec,b.rec", "a.rec"),
    (TRAIN + " --data recordio:bytes.rec", "magic number"),
    (TRAIN + " --data recordio:bytes.rec --on-bad-record skip", "magic number"),
    (TRAIN + " --data recordio:bytes.rec,other.rec", "magic number"),
    (TRAIN + " --data ofrecord:parts", "so nothing after it can be read"),
    (TRAIN + " --data raw:bytes.rec", "bytes.rec"),
    (TRAIN + " --data idx:parts", "train-labels-idx1-ubyte"),
    (FOLDER.replace("--batch 4", "--batch 100"), "fewer than one batch of 100"),
    (TRAIN + " --data folder:broken", "fake.png"),
    (TRAIN + " --data folder:hollow", "hollow"),
    (TRAIN + " --load-weights zip.pth", "zip.pth"),
    (TRAIN + " --load-weights photos", "photos"),
    (TRAIN + " --load-weights shards.json", "missing.safetensors"),
    (TRAIN + " --load-weights outside.json", "outside.json"),
    (TRAIN + " --load-weights types.safetensors", "types.safetensors"),
    (TRAIN + " --load-weights whole.safetensors --new-layers layr9", "--new-layers"),
    (TRAIN + " --lr-scale layr9=2", "--lr-scale"),
    (TRAIN + " --lr-scale conv1=-1", "--lr-scale"),
    (TRAIN + " --freeze-epochs 1", "--freeze-epochs"),
    (FOLDER + " --freeze conv1 --freeze-epochs -1", "--freeze-epochs"),
    (TRAIN + " --metric top1", "--metric"),
    (TRAIN + " --patience 3", "--patience"),
    (FOLDER + " --cutmix -1", "--cutmix"),
    (FOLDER + " --rand-augment 2,99", "--rand-augment"),
    (FOLDER + " --label-smoothing 2", "--label-smoothing"),
    (FOLDER + " --global-batch 4", "--global-batch"),
    (FOLDER + " --image 0", "--image"),
    (FOLDER + " --tensorboard words.txt", "words.txt"),
    (FOLDER + " --checkpoint words.txt", "words.txt"),
    (FOLDER + " --save-weights words.txt/out.safetensors", "words.txt"),
    ("train --config twice.yaml", "twice.yaml"),
    ("train --config value.yaml", "--batch is 'many'"),
    ("train --config wrong.yaml", "'wrong.yaml': line 2"),
    (FACES + " --head arcface --margin x", "--margin"),
    (FACES + " --head-lr -1 --head arcface", "--head-lr"),
    (FACES + " --eval-verification evil.pth", "evil.pth"),
    (FACES + " --eval-verification half.bin", "half.bin"),
    (TRAIN + " --data folder:nested", "did you mean 'folder:nested/photos'?"),
    (TRAIN + " --data folder:single", "one class, 'only'"),
    (TRAIN + " --data folder:flat", "images but no directories"),
    (TRAIN + " --load-weights run", "weights.safetensors"),
    (TRAIN + " --load-weights missing.safetensors", "missing.safetensors"),
    ("predict run heic.jpg", "'heic.jpg' is bad: its image is in the format HEIC"),
    ("predict run wide.png", "20000 × 20000 pixels, more than the 134 million"),
    ("predict run empty.jpg", "'empty.jpg' is bad: it is empty"),
    ("predict run - < half.png", "has no list of files"),
    ("predict . photos", "'./faces' has some"),
    ("eval run --best", "--data is missing"),
    ("eval run", "--data is missing"),
    ("eval whole.safetensors --model fashion_cnn", "--data is missing"),
    ("eval whole.safetensors --data folder:photos --load-weights whole.safetensors", "one file of weights"),
    ("eval run --data folder:photos --classes 3", "3x128 (2 tensors differ)."),
    ("eval run --verification pairs.bin", "embeddings"),
    ("eval run --identification folder:people", "embeddings"),
    ("predict nowhere photos", "nowhere"),
    ("predict run words.txt", "words.txt"),
    ("predict run photos --top 0", "--top"),
    ("predict run photos --best", "was measured"),
    ("predict run", "images"),
    ("predict run nowhere.jpg", "nowhere.jpg"),
    ("predict run hollow", "hollow"),
    ("predict run fake.png", "fake.png"),
    ("predict run half.png", "half.png"),
    ("predict run photos --json --csv", "--csv"),
    ("predict run photos -o words.txt/labels.json", "words.txt"),
    ("predict run - < list.txt", "nowhere.jpg"),
    ("predict run - < /dev/null", "standard input"),
    ("predict whole.safetensors photos --model resnet18", "whole.safetensors"),
    ("predict evil.pth photos --model fashion_cnn", "evil.pth"),
    ("predict run photos --mean 1,2", "--mean"),
    ("embed run photos -o faces.npy", "gives no embeddings"),
    ("embed faces people", "-o"),
    ("verify run words.txt words.txt", "embeddings"),
    ("predict run $'new\\nline.jpg'", "'new\\x0aline.jpg' does not exist"),
    ("predict run photos --crops 3", "choose 1"),
    ("predict run photos --crops 10", "taken whole"),
    ("predict run ''", "does not exist"),
    ("predict run photos --batch 0", "--batch"),
    ("predict run photos --workers 0", "--workers"),
    ("predict run photos --top 1.5", "--top is '1.5'; give a whole number"),
    ("predict run photos -o hollow", "is a directory"),
    ("predict list.pth photos --model fashion_cnn", "not one of torch.save's"),
    ("predict run hollow.jpg", "has no .jpg"),
    (FOLDER + " --epochs 1.5", "--epochs is '1.5'; give a whole number"),
    (FOLDER + " --batch 5", "--batch is given more than once"),
    (FOLDER + " --checkpoint ''", "--checkpoint is empty"),
    (FOLDER + " --mean 123.7", "divide it by 255"),
    (FOLDER + " --std 58", "divide it by 255"),
    (FOLDER + " --ema 2", "--ema"),
    (FOLDER + " --valid-share 1", "--valid-share"),
    (FOLDER + " --valid-share nan", "--valid-share"),
    (FOLDER + " --valid-share 0.01", "leaves nothing"),
    (FOLDER + " --image -5", "--image"),
    (FOLDER + " --eval-data folder:hollow", "no directories"),
    (FOLDER + " --class-weights photos", "Is a directory"),
    (FOLDER + " --label-smoothing -0.1", "--label-smoothing"),
    (FOLDER + " --rand-augment 2,9,3", "give two"),
    (FOLDER + " --lr nan", "--lr"),
    ("predict run zero", "none.png' is bad: it is empty"),
    ("train --config listed.yaml", "line 2 gives --lr a list of 2; it takes one number"),
    ("train --config mapped.yaml", "line 2 gives --lr no value"),
    ("train --config itself.yaml", "line 1 names another file"),
    ("train --config strange.yaml", "did you mean 'lr'?"),
    ("train --config scalar.yaml", "has no 'flag: value' lines"),
    ("train --config wish.yaml", "--quiet is true or false"),
    (FACES + " --data recordio:twice/a.rec,twice/a.rec", "is named twice"),
    ("eval faces --verification hollow", "Is a directory"),
    ("verify faces words.txt", "two"),
    ("verify faces words.txt words.txt", "words.txt"),
    ("verify faces nothing.jpg words.txt", "'nothing.jpg' does not exist"),
    ("verify faces people", "two images; there are"),
    (TRAIN + " --learning-rate 0.1", "did you mean '--lr'"),
    (TRAIN + " --learning_rate 0.1", "did you mean '--lr'"),
    (TRAIN + " --batch-size 4", "did you mean '--batch'"),
    (TRAIN + " --pretrained whole.safetensors", "did you mean '--fine-tune'"),
    (TRAIN + " --dataset folder:photos", "did you mean '--data'"),
    (TRAIN + " --val-split 0.2", "did you mean '--valid-share'"),
    ("train --config habits.yaml", "line 2 has 'learning_rate', which is no flag of 'train'; did you mean 'lr'"),
    ("train --config run", "its configuration is 'run/job.yaml'"),
    (TRAIN + " --data photos", "did you mean folder:photos?"),
    (TRAIN + " --data other.rec", "did you mean recordio:other.rec?"),
    (TRAIN + " --data Folder:photos", "did you mean folder:photos?"),
    (TRAIN + " --optimizer SGD", "did you mean 'sgd'"),
    (TRAIN + " --optimizer adam", "did you mean 'adamw'"),
    (FOLDER + " --valid-share 0.5 --metric acc", "did you mean 'top1'"),
    (FOLDER + " --class-weights 1,2,3", "write balanced, or name a file"),
    (TRAIN + " --freeze backbone", "which has conv1,"),
    (TRAIN + " --save-weights out.h5", "written as .safetensors"),
    (TRAIN + " --save-weights out.onnx", "`millrace export` writes ONNX"),
    ("ckpt export run out.h5", "written as .safetensors"),
    ("train --model resnet18 --image 32 --steps 1 --batch 4 --fine-tune deeper.safetensors",
     "have no place in it; it is of another network"),
    ("eval run --weights whole.safetensors --data folder:photos", "give one of them"),
    ("eval run --data photos", "did you mean folder:photos?"),
    ("eval", "a run's directory or a file of weights"),
    ("predict heic.jpg run", "'heic.jpg' is an image; name the weights first"),
    ("predict --best heic.jpg", "'heic.jpg' is an image; name the weights first"),
    ("embed faces people -o faces.csv", "written as .npy"),
    ("verify faces people/000000/00000000.jpg people/000000/00000001.jpg --threshold 9", "between 0 and 4"),
    ("verify faces people/000000/00000000.jpg people/000000/00000001.jpg --threshold -1", "between 0 and 4"),
    ("finetune --model resnet18", "Argument 'finetune' is not known"),
    ("Predict run photos", "did you mean 'predict'"),
    (TRAIN + " --image 28x28", "--image is given more than once"),
    (TRAIN + " --lr 0,01", "--lr is '0,01'; give a number"),
    (TRAIN + " --lr-warmup 10%", "give steps (500) or epochs (3e)"),
    ("export run out.pt", "does not end in .onnx"),
]


class Command:
    """Called when it is unpickled, if anybody does that."""

    def __reduce__(self):
        return os.system, ("touch executed",)


def png_of(width, height):
    """A file that begins like one of so many grey pixels."""
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(bytes(100000))) + chunk(b"IEND", b""))


def prepare(program):
    def run(words):
        done = subprocess.run([program, *words.split()], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{words}: {done.stderr}")
    run("data synth folder:photos --count 12 --classes 3 --width 20 --height 20 --channels 1")
    run(TRAIN + " --classes 10 --save-weights whole.safetensors --checkpoint run")
    run("train --model resnet50 --image 32 --batch 4 --steps 1 --classes 10 --save-weights deeper.safetensors")
    run("data synth folder:people --faces --identities 3 --images 3 --size 32 --pairs 12")
    run(FACES + " --data folder:people --checkpoint faces")
    run("data synth recordio:twice/a.rec --faces --identities 3 --images 3 --size 32 --pairs 0")
    for name in ("copy", "parts", "hollow.jpg", "zero/a", "zero/b", "hollow", "broken/a", "broken/b", "nested", "single"):
        os.makedirs(name)
    shutil.copytree("photos", "nested/photos")
    shutil.copytree(sorted(glob.glob("photos/*"))[0], "single/only")
    shutil.copytree(sorted(glob.glob("photos/*"))[0], "flat")
    shutil.copy("pairs.bin", "copy/pairs.bin")
    with open("whole.safetensors", "rb") as file:
        whole = file.read()
    with open("pairs.bin", "rb") as file:
        pairs = file.read()
    with open(sorted(glob.glob("photos/*/*"))[0], "rb") as file:
        picture = file.read()
    files = {"empty.pth": b"", "page.pth": b"<!DOCTYPE html><p>Not found",
             "pointer.pth": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n",
             "half.safetensors": whole[:len(whole) // 2], "evil.pth": pickle.dumps(Command()),
             "few.txt": b"1\n2\n", "strange.txt": b"cat 1\ndog 2\n", "words.txt": b"one\ntwo\nthree\n",
             "bytes.rec": NOISE, "other.rec": NOISE, "parts/part-00000": NOISE, "fake.png": NOISE,
             **{f"broken/{where}/fake.png": NOISE for where in "ab"},
             **{f"broken/{where}/real{number}.png": picture for where in "ab" for number in range(4)},
             "half.png": picture[:len(picture) // 2], "empty.jpg": b"", "wide.png": png_of(20000, 20000),
             "heic.jpg": b"\0\0\0\x18ftypheic" + NOISE, "half.bin": pairs[:len(pairs) // 2],
             "zip.pth": b"PK\3\4" + NOISE, "list.txt": b"nowhere.jpg\n",
             "shards.json": b'{"weight_map": {"conv1.weight": "missing.safetensors"}}',
             "outside.json": b'{"weight_map": {"conv1.weight": "../../etc/passwd"}}',
             "types.safetensors": (45).to_bytes(8, "little") + b'{"a":{"dtype":"X9","shape":[],"data_offsets":[0,0]}}',
             "twice.yaml": b"model: fashion_cnn\nmodel: resnet18\n", "value.yaml": b"model: fashion_cnn\nbatch: many\n",
             "listed.yaml": b"model: fashion_cnn\nlr: [0.1, 0.2]\n", "mapped.yaml": b"model: fashion_cnn\nlr:\n  x: 1\n",
             "itself.yaml": b"config: itself.yaml\n", "strange.yaml": b"a: 1\n", "scalar.yaml": b"hello\n",
             "wish.yaml": b"quiet: 3\n", "list.pth": pickle.dumps([1, 2, 3], 2),
             **{f"zero/{where}/real{number}.png": picture for where in "ab" for number in range(4)}, "zero/a/none.png": b"",
             "habits.yaml": b"model: fashion_cnn\nlearning_rate: 0.1\n",
             "wrong.yaml": b"model: fashion_cnn\nepoch: 3\n", "broken.yaml": b"model: [\n"}
    for name, content in files.items():
        with open(name, "wb") as file:
            file.write(content)


def fault_of(program, words, needed):
    done = subprocess.run(["bash", "-c", f"'{program}' {words}"], capture_output=True, text=True, check=False,
                          timeout=60)
    lines = [line for line in done.stderr.split("\n") if line and not line.startswith("millrace: warning")]
    if done.returncode != 2:
        return f"status {done.returncode}: {done.stderr}"
    if len(lines) != 1 or not re.search(r"[.?]$", lines[0]):
        return f"not one sentence: {done.stderr}"
    if re.search("[‹›]", done.stderr):
        return f"a setting is not written as a flag: {done.stderr}"
    if needed not in lines[0]:
        return f"'{needed}' is not in: {lines[0]}"
    return None


def main():
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as home:
        os.chdir(home)
        prepare(program)
        faults = [(words, fault_of(program, words, needed)) for words, needed in CASES]
        if os.path.exists("executed"):
            faults.append(("evil.pth", "what the file says was executed"))
        os.chdir("/")
    for words, fault in faults:
        if fault:
            print(f"millrace {words}\n    {fault}")
    print(f"{len(CASES)} mistakes, {sum(1 for _, fault in faults if fault)} of them badly told")
    sys.exit(1 if any(fault for _, fault in faults) else 0)


if __name__ == "__main__":
    main()
