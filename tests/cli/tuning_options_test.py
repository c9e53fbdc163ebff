#!/usr/bin/python3
"""Options of fine-tuning that another way of saying the same must equal to the bit.

usage: tuning_options_test.py PROGRAM
"""
import hashlib
import json
import os
import subprocess
import sys
import tempfile

COMMON = ["--threads-per-device", "1", "--oversubscribe", "--conv-algo", "direct", "--quiet"]
CNN = ["train", "--model", "fashion_cnn", "--channels", "3", "--image", "16", "--data", "folder:photos", "--lr", "0.01",
       *COMMON]
FACES = ["train", "--model", "mobilefacenet", "--image", "32", "--lr", "0.01", *COMMON]
FROZEN = "conv1,bn1,layer1"
faults = []


def run(*words, status=0):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != status:
        faults.append(f"{' '.join(words)}: status {done.returncode}: {done.stderr}")
    return done


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def expect_same(what, first, second):
    if digest(first) != digest(second):
        faults.append(f"{what}: '{first}' and '{second}' differ")


def expect(what, holds):
    if not holds:
        faults.append(what)


def newest(directory):
    return os.path.join(directory, sorted(name for name in os.listdir(directory) if name.startswith("step-"))[-1])


def check_freeze_epochs():
    """One job, or one that freezes and another that goes on; and the same interrupted in its second part."""
    freeze = ["--freeze", FROZEN]
    run(*CNN, "--batch", "4", "--epochs", "3", *freeze, "--freeze-epochs", "1", "--checkpoint", "one",
        "--metrics", "one.jsonl")
    run(*CNN, "--batch", "4", "--epochs", "1", *freeze, "--checkpoint", "two")
    middle = digest(newest("two") + "/weights.safetensors")
    run(*CNN, "--batch", "4", "--epochs", "2", "--checkpoint", "two", "--resume")
    run(*CNN, "--batch", "4", "--epochs", "3", *freeze, "--freeze-epochs", "1", "--checkpoint", "two", "--resume")
    expect_same("--freeze-epochs", newest("one") + "/weights.safetensors", newest("two") + "/weights.safetensors")
    expect_same("--freeze-epochs", newest("one") + "/optimizer.safetensors", newest("two") + "/optimizer.safetensors")
    expect("the frozen epoch changed nothing", middle != digest(newest("two") + "/weights.safetensors"))
    run(*CNN, "--batch", "4", "--epochs", "3", "--checkpoint", "never")
    expect("--freeze-epochs does something", digest(newest("one") + "/weights.safetensors") !=
           digest(newest("never") + "/weights.safetensors"))
    with open("one.jsonl", encoding="utf-8") as file:
        steps = [line["step"] for line in map(json.loads, file) if line["kind"] == "step"]
    expect(f"metrics have every step once: {steps}", steps == list(range(1, 10)))


def check_global_batch():
    run(*CNN, "--devices", "2", "--batch", "3", "--epochs", "1", "--save-weights", "a.safetensors")
    run(*CNN, "--devices", "2", "--global-batch", "6", "--epochs", "1", "--save-weights", "b.safetensors")
    expect_same("--global-batch", "a.safetensors", "b.safetensors")


def check_joined_sets():
    """Two files of people, and one that has the images of both in the same order."""
    files = "recordio:first.rec,second.rec"
    run("data", "synth", "recordio:first.rec", "--faces", "--identities", "3", "--images", "4", "--size", "32",
        "--pairs", "12")
    run("data", "synth", "recordio:second.rec", "--faces", "--identities", "2", "--images", "4", "--size", "32",
        "--pairs", "0", "--seed", "9")
    run("data", "convert", files, "recordio:both.rec")
    run(*FACES, "--data", files, "--batch", "5", "--epochs", "1", "--head", "cosface", "--save-weights", "a.safetensors")
    run(*FACES, "--data", "recordio:both.rec", "--classes", "5", "--batch", "5", "--epochs", "1", "--head", "cosface",
        "--save-weights", "b.safetensors")
    expect_same("several .rec files", "a.safetensors", "b.safetensors")
    facts = json.loads(run("data", "inspect", files, "--json").stdout)
    expect(f"5 identities and 20 images in {facts}", (facts["records"], facts["classes"]) == (20, 5))


def check_new_identities():
    """An old backbone with other people, as the issue of most users: the head starts anew, at its own rate."""
    run(*FACES, "--data", "recordio:first.rec", "--batch", "6", "--epochs", "1", "--head", "arcface", "--save-weights",
        "old.safetensors")
    told = run(*[word for word in FACES if word not in ("--lr", "0.01", "--quiet")], "--data", "recordio:second.rec",
               "--batch", "4", "--epochs", "1", "--head", "arcface", "--fine-tune", "old.safetensors",
               "--eval-verification", "pairs.bin", "--checkpoint", "new").stdout
    expect(f"the head starts anew: {told}", "head.centres starts anew" in told)
    expect(f"pairs are told apart: {told}", "12 pairs, verification" in told)
    shown = run("train", "--model", "mobilefacenet", "--head", "arcface", "--fine-tune", "old.safetensors", "--steps",
                "1", "--print-config").stdout
    expect(f"the preset of heads: {shown}", "head-lr: 0.1" in shown and "label-smoothing: 0.1" not in shown)


def check_head_rate():
    """A rate of the head is a factor of the layers 'head', linear or with a margin."""
    for head in ([], ["--head", "arcface"], ["--head", "arcface", "--head-parallel", "pfc", "--sample-rate", "0.7"]):
        common = [*FACES, "--data", "recordio:first.rec", "--batch", "4", "--epochs", "1", *head]
        run(*common, "--head-lr", "0.04", "--save-weights", "a.safetensors")
        run(*common, "--lr-scale", "head=4", "--save-weights", "b.safetensors")
        run(*common, "--save-weights", "c.safetensors")
        expect_same(f"--head-lr {head}", "a.safetensors", "b.safetensors")
        expect(f"--head-lr {head} does something", digest("a.safetensors") != digest("c.safetensors"))


def main():
    with tempfile.TemporaryDirectory(prefix="millrace-tuning-") as home:
        os.chdir(home)
        run("data", "synth", "folder:photos", "--count", "12", "--classes", "3", "--width", "18", "--height", "18")
        for check in (check_freeze_epochs, check_global_batch, check_joined_sets, check_new_identities,
                      check_head_rate):
            try:
                check()
            except (OSError, ValueError, KeyError, IndexError) as error:
                faults.append(f"{check.__name__}: {error!r}")
        os.chdir("/")
    for fault in faults:
        print(fault)
    print("as they should be" if not faults else f"{len(faults)} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv[1])
    main()
