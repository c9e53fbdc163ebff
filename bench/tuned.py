#!/usr/bin/python3
"""Holds the speed without `millrace tune` against that with it.

For each job two processes take turns, a step each: one with an empty cache, which chooses
convolutions by the shipped costs, and one whose cache `millrace tune` has just filled. The figure is
the ratio of their median steps; the bar is 0.97. Also says how long each job takes from its start to
its first step (bar: 5 s) and `millrace plan` to its end (3 s), with the empty cache.
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

BAR = 0.97
LONGEST_START = 5
LONGEST_PLAN = 3


class Steps:
    """A process that runs a step when asked."""

    def __init__(self, options, cache, job):
        self.process = subprocess.Popen(
            [os.path.join(options.build, "millrace"), "bench", "steps", *job],
            env={**os.environ, "XDG_CACHE_HOME": cache}, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit("`millrace bench steps` ended before it answered.")
        return json.loads(line)

    def step(self):
        print("step", file=self.process.stdin, flush=True)
        return self.read()["seconds"]

    def end(self):
        print("quit", file=self.process.stdin, flush=True)
        self.process.wait()


def call(options, cache, *arguments):
    """Runs the program, its messages shown; returns its seconds."""
    started = time.monotonic()
    subprocess.run([os.path.join(options.build, "millrace"), *arguments],
                   env={**os.environ, "XDG_CACHE_HOME": cache}, check=True,
                   stdout=subprocess.DEVNULL)
    return time.monotonic() - started


def seconds_to_first_step(options, cache, job):
    """From the start of `millrace train` until its first step begins."""
    metrics = os.path.join(cache, "metrics.jsonl")
    seconds = call(options, cache, "train", *job, "--steps", "1", "--metrics", metrics, "--quiet")
    with open(metrics) as file:
        return seconds - json.loads(file.readline())["seconds"]


def measure(options, name):
    model, batch = name.split(":")
    job = ["--model", model, "--batch", batch, "--threads-per-device", str(options.threads)]
    with tempfile.TemporaryDirectory() as fresh, tempfile.TemporaryDirectory() as tuned:
        start = seconds_to_first_step(options, fresh, job)
        plan = call(options, fresh, "plan", *job)
        tuning = call(options, tuned, "tune", *job)
        processes = [Steps(options, fresh, job), Steps(options, tuned, job)]
        for process in processes:
            process.step()
        seconds = [[], []]
        for _ in range(options.rounds):
            for process, list_ in zip(processes, seconds):
                list_.append(process.step())
        for process in processes:
            process.end()
    untuned, with_tuning = map(statistics.median, seconds)
    result = {"job": name, "ratio": with_tuning / untuned, "seconds": untuned,
              "tuned_seconds": with_tuning, "start_seconds": start, "plan_seconds": plan,
              "tuning_seconds": tuning}
    result["met"] = (result["ratio"] >= BAR and start <= LONGEST_START and plan <= LONGEST_PLAN)
    print(f"{name}: {untuned:.3f} s a step, {with_tuning:.3f} s tuned (in {tuning:.0f} s): "
          f"{result['ratio']:.3f} of the tuned speed; first step after {start:.1f} s, plan in "
          f"{plan:.1f} s: {runs.verdict(result['met'])}", flush=True)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(runs.ROOT, "build"), help="build directory")
    parser.add_argument("--jobs", default="resnet50:64,vgg16:28,alexnet:252", help="MODEL:BATCH,…")
    parser.add_argument("--rounds", type=int, default=7, help="steps of each")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", metavar="FILE", help="write the results there too")
    options = parser.parse_args()
    results = [measure(options, name) for name in options.jobs.split(",")]
    runs.save_json(options.json, results)
    return 0 if all(result["met"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
