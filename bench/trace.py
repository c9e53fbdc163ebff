#!/usr/bin/python3
"""What `--trace` costs: the same job with and without it in turn, and the ratio of their median steps.

The bar is 1.02. The jobs are one device, two devices and a pipeline of two stages.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

BAR = 1.02
JOBS = {
    "one device": ["--devices", "1"],
    "two devices": ["--devices", "2", "--threads-per-device", "1"],
    "two stages": ["--placement", "0:0.0:1", "--schedule", "1f1b-flush", "--microbatches", "4",
                   "--threads-per-device", "1"],
}


def seconds_per_step(millrace, directory, job, options, traced):
    summary = os.path.join(directory, "summary.json")
    command = [millrace, "train", "--model", options.model, "--image", str(options.image), "--batch",
               str(options.batch), "--steps", str(options.steps), "--summary", summary, *job]
    if traced:
        command += ["--trace", os.path.join(directory, "trace.json")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(summary) as file:
        return json.load(file)["seconds_per_step"]["median"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--image", type=int, default=112)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    options = parser.parse_args()
    millrace = os.path.join(options.build, "millrace")
    worst = 0
    with tempfile.TemporaryDirectory() as directory:
        for name in options.jobs:
            times = {False: [], True: []}
            for number in range(2 * options.rounds):
                traced = (number + number // 2) % 2 == 1
                times[traced].append(seconds_per_step(millrace, directory, JOBS[name], options, traced))
            plain, traced = (statistics.median(times[kind]) for kind in (False, True))
            worst = max(worst, traced / plain)
            print(f"{name:12}  {plain:.4f} s without, {traced:.4f} s with a trace: {traced / plain:.3f}")
    print(f"worst {worst:.3f}, bar {BAR}")
    return 0 if worst <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
