#!/usr/bin/python3
"""What people wait for when they fine-tune and predict, each against its bar.

frozen: a training step of ResNet-50 with 96 pixels, batch 8, and only `fc` trained, beside one that
trains everything, in turn; the ratio of their median steps, and of their memory.
predict: the seconds from the start to the end of `millrace predict` of one photo with ResNet-50, its
weights and the program read from the disk (cold: the pages that the kernel keeps of them are given back
before) and from memory; the largest counts.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import millrace_runs as runs

FROZEN_BAR = 4
PREDICT_BAR = 1.0  # seconds
FROZEN = ("train", "--model", "resnet50", "--image", 96, "--batch", 8, "--classes", 1000, "--quiet")


def seconds_and_memory(options, directory, *more):
    summary = os.path.join(directory, "summary.json")
    runs.run_millrace(options, *FROZEN, "--steps", options.steps, "--threads-per-device", options.threads,
                      "--summary", summary, *more)
    with open(summary) as file:
        told = json.load(file)
    return told["seconds_per_step"]["median"], told["devices"][0]["peak_bytes"]


def measure_frozen(options, directory):
    times, sizes = {}, {}
    for _ in range(options.rounds):
        for name, more in (("all", ()), ("fc", ("--train-only", "fc")),
                           ("fc, norms fixed", ("--train-only", "fc", "--freeze-norms"))):
            seconds, sizes[name] = seconds_and_memory(options, directory, *more)
            times.setdefault(name, []).append(seconds)
    whole, part, fixed = (statistics.median(list_) for list_ in times.values())
    met = whole / part >= FROZEN_BAR
    print(f"frozen: {whole:.4f} s a step, {part:.4f} s with only fc trained: {whole / part:.2f} times as fast "
          f"(bar {FROZEN_BAR}), {whole / fixed:.2f} times with norms fixed too, arena {sizes['all'] / 2**20:.0f} MiB and {sizes['fc'] / 2**20:.0f} MiB: "
          f"{runs.verdict(met)}", flush=True)
    return {"ratio": whole / part, "bytes": sizes, "seconds": times, "met": met}


def give_back(*paths):
    """The pages that the kernel keeps of these files."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def measure_predict(options, directory):
    program = os.path.join(options.build, "millrace")
    weights = os.path.join(directory, "resnet50.safetensors")
    photos = os.path.join(directory, "photos")
    runs.run_millrace(options, "train", "--model", "resnet50", "--image", 32, "--batch", 2, "--steps", 1, "--quiet",
                      "--train-only", "fc", "--freeze-norms", "--lr", 1e-6, "--classes", 1000, "--save-weights", weights)
    runs.run_millrace(options, "data", "synth", "folder:" + photos, "--count", 1, "--classes", 1, "--width", 640,
                      "--height", 480)
    photo = next(os.path.join(where, name) for where, _, names in os.walk(photos) for name in names)
    times = {"cold": [], "warm": []}
    for _ in range(options.rounds):
        for kind, list_ in times.items():
            if kind == "cold":
                give_back(weights, photo, program)
            begin = time.monotonic()
            subprocess.run([program, "predict", weights, photo, "--image", "224"], check=True,
                           stdout=subprocess.DEVNULL)
            list_.append(time.monotonic() - begin)
    worst = max(max(list_) for list_ in times.values())
    met = worst <= PREDICT_BAR
    told = ", ".join(f"{kind} {statistics.median(list_):.2f} s (most {max(list_):.2f})"
                     for kind, list_ in times.items())
    print(f"predict: one photo with ResNet-50 {told}, bar {PREDICT_BAR:.0f} s: {runs.verdict(met)}", flush=True)
    return {"seconds": times, "met": met}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(runs.ROOT, "build"), help="build directory")
    parser.add_argument("--only", choices=["frozen", "predict"])
    parser.add_argument("--threads", type=int, default=0, help="0 takes every core")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="write the results there too")
    options = parser.parse_args()
    jobs = {"frozen": measure_frozen, "predict": measure_predict}
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as directory:
        results = {name: job(options, directory) for name, job in jobs.items() if options.only in (None, name)}
    runs.save_json(options.json, results)
    return 0 if all(result["met"] for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
