#!/usr/bin/python3
"""The same pictures give the same numbers, whoever is asked: the evaluation at the end of a training job in
every placement, `eval` of its checkpoint, `predict`, `embed` and, for faces, the verification of pairs.

usage: same_numbers_test.py PROGRAM
"""
import json
import math
import os
import pickle
import subprocess
import sys
import tempfile

import numpy

COMMON = ["--threads-per-device", "1", "--oversubscribe", "--conv-algo", "direct", "--quiet"]
PLACEMENTS = {
    "alone": [],
    "two devices": ["--devices", "2"],
    "three devices": ["--devices", "3"],
    "parts of layers": ["--devices", "2", "--parallel", "model"],
    "both": ["--devices", "2", "--parallel", "hybrid"],
    "pipeline": ["--placement", "0:0.0:1", "--microbatches", "3"],
    "wide pipeline": ["--placement", "0:0-1.0:2", "--schedule", "gpipe", "--microbatches", "2"],
    "pipeline that sends bf16": ["--placement", "0:0.0:1", "--microbatches", "3", "--comm-dtype", "bf16"],
    "wide pipeline that sends fp16": ["--placement", "0:0-1.0:2", "--comm-dtype", "fp16", "--microbatches", "2"],
    "replicas in turn": ["--devices", "2", "--replicas", "roundrobin", "--microbatches", "2"],
    "micro-batches": ["--microbatches", "3"],
    "stale pipeline": ["--placement", "0:0.0:1", "--schedule", "1f1b", "--microbatches", "3"],
    "interleaved": ["--placement", "0:0.0:1.0:0.0:1", "--schedule", "interleaved", "--microbatches", "2"],
}
HEADS = {"linear": [], "arcface": ["--head", "arcface"],
         "divided": ["--head", "arcface", "--head-parallel", "mp"],
         "adaface": ["--head", "adaface"], "magface": ["--head", "magface"],
         "curricularface": ["--head", "curricularface"]}
# At a lower rate the linear head leaves embeddings so alike that rounding decides which are nearer.
HEAD_RATES = {"linear": "0.1"}
FACE_PLACEMENTS = {"alone": ["linear", "arcface", "adaface", "magface", "curricularface"],
                   "two devices": ["linear", "divided", "adaface", "magface", "curricularface"],
                   "pipeline": ["arcface"], "wide pipeline": ["arcface"]}
# What changes the numbers of an evaluation, in some of the placements.
OPTIONS = {"average": ["--ema", "0.8"], "fixed norms": ["--freeze-norms"],
           "frozen": ["--freeze", "conv1,bn1"], "fixed norms, average": ["--freeze-norms", "--ema", "0.5"]}
OPTION_PLACEMENTS = ("alone", "two devices", "pipeline")
# Numbers of 16 bits: what stages send must not be rounded again. The first in every placement.
PRECISIONS = {"bf16": ["--precision", "bf16"], "fp16": ["--precision", "fp16"],
              "bf16 kept": ["--precision", "bf16", "--precision-arithmetic", "storage"]}
PRECISION_PLACEMENTS = {"bf16": list(PLACEMENTS), "fp16": ["pipeline", "stale pipeline", "wide pipeline"],
                        "bf16 kept": ["pipeline", "interleaved", "wide pipeline"]}
FACE_PRECISIONS = {"pipeline": ("bf16", "fp16"), "two devices": ("bf16",)}
UNDECIDED = 0.1  # of the comparisons of pairs
ROUNDING = 1e-6  # of an embedding, whose networks have sums of 32 bits in different orders
FACTOR = 6  # samples of a step that every placement divides


class Checks:
    def __init__(self, program):
        self.program, self.faults, self.count = program, [], 0

    def run(self, *words):
        done = subprocess.run([self.program, *words], capture_output=True, text=True, check=False, timeout=300)
        if done.returncode != 0:
            self.faults.append(f"{' '.join(words)}: {done.stderr}")
            return None
        return done.stdout

    def tell(self, what):
        print(f"{what}: {self.count} numbers compared so far, {len(self.faults)} faults", flush=True)

    def near(self, what, first, second, tolerance=2e-5):
        self.count += 1
        if not abs(first - second) <= tolerance * max(1.0, abs(first)):
            self.faults.append(f"{what}: {first} and {second}")

    def between(self, what, value, least, most):
        self.count += 1
        if not least - 1e-9 <= value <= most + 1e-9:
            self.faults.append(f"{what}: {value}, not between {least} and {most}")


def summary(name):
    with open(name, encoding="utf-8") as file:
        return json.load(file)


def safetensors(name):
    with open(name, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        data = file.read()
    return {key: numpy.frombuffer(data[slice(*entry["data_offsets"])],
                                  {"F32": "<f4", "I32": "<i4"}[entry["dtype"]]).reshape(entry["shape"])
            for key, entry in header.items() if key != "__metadata__"}


def check_classes(checks, name, where):
    run = "run " + name
    if checks.run("train", "--model", "fashion_cnn", "--channels", "3", "--image", "20", "--data", "folder:photos",
                  "--eval-data", "folder:photos", "--global-batch", str(FACTOR), "--epochs", "2", "--lr", "0.02",
                  "--checkpoint", run, "--summary", "s.json", *COMMON, *where) is None:
        return
    told = summary("s.json")["evaluation"]
    alone = checks.run("eval", run, "--json", "--logits", "l.safetensors", "--batch", "5")
    labels = checks.run("predict", run, "photos", "--json", "--top", "3", "--batch", "4")
    if alone is None or labels is None:
        return
    for figure in ("loss", "top1", "top5", "recall", "balanced_loss"):
        checks.near(f"{name}: {figure}", told[figure], json.loads(alone)[figure])
    kept = safetensors("l.safetensors")
    logits = kept["logits"].astype(float)
    shares = numpy.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    losses = -numpy.log(shares[numpy.arange(len(shares)), kept["labels"]])
    checks.near(f"{name}: loss of the logits", told["loss"], losses.mean())
    for row, entry in zip(shares, json.loads(labels)):
        for share in entry["top"]:
            checks.near(f"{name}: {entry['file']}", share["share"], row[share["class"]])


def check_exported(checks, run):
    """A file of weights tells what the run does that it comes from."""
    checks.run("ckpt", "export", run, "exported.safetensors")
    own, file = (checks.run("eval", of, "--json", *data) for of, data in
                 ((run, []), ("exported.safetensors", ["--data", "folder:photos"])))
    if own and file:
        checks.near("exported: loss", json.loads(own)["loss"], json.loads(file)["loss"], 0)


def accuracy_of(rows, same):
    """Ten folds, by the definition in docs/faces.md, the area, and the least and the most that another order of
    sums may make of it, as distances that are apart by what rounding does may come out either way."""
    distances = numpy.square(rows[0::2] - rows[1::2]).sum(1)
    thresholds = numpy.arange(400) * 0.01
    right = (distances[None, :] < thresholds[:, None]) == same[None, :]
    folds = [right[numpy.argmax(numpy.delete(right, fold, axis=1).mean(axis=1))][fold].mean()
             for fold in numpy.array_split(numpy.arange(len(same)), 10)]
    own, other = distances[same], distances[~same]
    # Embeddings have the length one; what rounds them moves a distance by so much.
    rounding = 4 * ROUNDING * (numpy.sqrt(own)[:, None] + numpy.sqrt(other)[None, :])
    apart = other[None, :] - own[:, None]
    area = ((apart > 0).mean() + (apart >= 0).mean()) / 2
    return numpy.mean(folds), area, (apart > rounding).mean(), (apart >= -rounding).mean()


def check_faces(checks, name, where, head, same):
    run = f"faces {name} {head}"
    if checks.run("train", "--model", "mobilefacenet", "--image", "32", "--data", "folder:people", "--global-batch",
                  "12", "--epochs", "1", "--lr", HEAD_RATES.get(head, "0.01"), "--eval-verification", "pairs.bin,arrays.bin",
                  "--checkpoint", run, "--summary", "s.json", *COMMON, *where, *HEADS[head]) is None:
        return
    told = summary("s.json")["evaluation"]
    alone = checks.run("eval", run, "--best", "--json", "--batch", "7")
    done = checks.run("embed", run, "--best", *[f"pair/{i:03d}.png" for i in range(2 * len(same))], "-o", "e.npy",
                      "--batch", "7")
    if alone is None or done is None:
        return
    sets = json.loads(alone)["sets"]
    rows = numpy.load("e.npy").astype(float)
    accuracy, area, least, most = accuracy_of(rows, same)
    checks.near(f"{run}: comparisons of pairs that rounding may turn", most - least, 0, UNDECIDED)
    for each in ("pairs", "arrays"):
        checks.near(f"{run}: {each}", told["verification/" + each], sets[each]["accuracy"])
        checks.near(f"{run}: area of {each}", sets[each]["auc"], area)
        checks.near(f"{run}: {each} by their vectors", sets[each]["accuracy"], accuracy)
    checks.near(f"{run}: the mean", told["verification"], accuracy)
    checks.between(f"{run}: area by vectors", told["auc"], least, most)
    checks.near(f"{run}: pairs", told["pairs"], 2 * len(same))


def make_pairs():
    """The images of pairs.bin as files, and the same set as numpy would have it."""
    with open("pairs.bin", "rb") as file:
        images, same = pickle.load(file, encoding="bytes")
    os.mkdir("pair")
    for number, image in enumerate(images):
        with open(f"pair/{number:03d}.png", "wb") as file:
            file.write(image)
    arrays = [numpy.frombuffer(image, numpy.uint8).reshape(-1, 1) for image in images]
    with open("arrays.bin", "wb") as file:
        pickle.dump((arrays, numpy.array(same)), file, protocol=4)
    return numpy.array(same)


def main():
    checks = Checks(os.path.abspath(sys.argv[1]))
    with tempfile.TemporaryDirectory(prefix="millrace-same-") as home:
        os.chdir(home)
        checks.run("data", "synth", "folder:photos", "--count", "26", "--classes", "3", "--width", "24", "--height",
                   "22")
        checks.run("data", "synth", "folder:people", "--faces", "--identities", "4", "--images", "6", "--size", "32",
                   "--pairs", "20")
        same = make_pairs()
        for name, where in PLACEMENTS.items():
            check_classes(checks, name, where)
            checks.tell(f"classes, {name}")
        check_exported(checks, "run alone")
        for name in OPTION_PLACEMENTS:
            for option, words in OPTIONS.items():
                check_classes(checks, f"{name}, {option}", [*PLACEMENTS[name], *words])
                checks.tell(f"classes, {name}, {option}")
        for precision, placements in PRECISION_PLACEMENTS.items():
            for name in placements:
                check_classes(checks, f"{name}, {precision}", [*PLACEMENTS[name], *PRECISIONS[precision]])
                checks.tell(f"classes, {name}, {precision}")
        for name, heads in FACE_PLACEMENTS.items():
            for head in heads:
                check_faces(checks, name, PLACEMENTS[name], head, same)
                checks.tell(f"faces, {name}, {head}")
        for name, precisions in FACE_PRECISIONS.items():
            for precision in precisions:
                check_faces(checks, f"{name}, {precision}", [*PLACEMENTS[name], *PRECISIONS[precision]], "arcface", same)
                checks.tell(f"faces, {name}, {precision}")
        os.chdir("/")
    for fault in checks.faults[:20]:
        print(fault)
    print(f"{checks.count} numbers compared, {len(checks.faults)} faults")
    sys.exit(1 if checks.faults or checks.count < 100 or not math.isfinite(checks.count) else 0)


if __name__ == "__main__":
    main()
