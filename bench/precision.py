#!/usr/bin/python3
"""Holds 16-bit training against float32: memory, speed, ten-step losses, accuracy.

Every comparison is between runs of one call, one after the other in turn, and its figure is the
median. `--arithmetic storage` measures what a processor without 16-bit arithmetic would do.
"""
import argparse
import json
import os
import statistics
import sys
import types

import millrace_runs as runs

IMAGES = "/usr/share/datasets/fashion-mnist"
PRECISIONS = ["fp16", "bf16"]


def precision_flags(options, precision):
    flags = ["--precision", precision]
    if precision != "fp32":
        flags += ["--precision-arithmetic", options.arithmetic]
    return flags


def run_of(options, model, batch, steps):
    """What `runs.train` wants to know of one run."""
    return types.SimpleNamespace(build=options.build, model=model, batch=batch, steps=steps,
                                 classes=options.classes, threads=options.threads,
                                 image=options.image)


def steps_of(options, model, batch, steps, *arguments):
    metrics = os.path.join(options.directory, f"precision-{os.getpid()}.jsonl")
    try:
        lines = runs.train(run_of(options, model, batch, steps), metrics, *arguments)
    finally:
        if os.path.exists(metrics):
            os.remove(metrics)
    return [line for line in lines if line["kind"] == "step"]


def memory(options):
    """Bars: activations at most 0.55 of float32, the whole device at most 0.65."""
    def planned(precision):
        text = runs.run_millrace(options, "plan", "--model", "resnet50", "--batch", 64, "--json",
                                 *precision_flags(options, precision))
        device = json.loads(text)["devices"][0]
        return device["breakdown"]["activations"], device["peak_bytes"]

    usual = planned("fp32")
    results = []
    for precision in PRECISIONS:
        activations, peak = planned(precision)
        result = {"precision": precision, "activations": activations / usual[0],
                  "device": peak / usual[1]}
        result["met"] = result["activations"] <= 0.55 and result["device"] <= 0.65
        print(f"ResNet-50, batch 64, {precision}: activations {activations / 2**20:.0f} of "
              f"{usual[0] / 2**20:.0f} MiB ({result['activations']:.3f}), device "
              f"{peak / 2**20:.0f} of {usual[1] / 2**20:.0f} MiB ({result['device']:.3f})   "
              f"{runs.verdict(result['met'])}", flush=True)
        results.append(result)
    return results


def speed(options):
    """Bar: at least 0.90 of float32 without 16-bit arithmetic."""
    results = []
    for model, batch in (("resnet50", 64), ("vgg16", 14)):
        seconds = {precision: [] for precision in ["fp32"] + PRECISIONS}
        for _ in range(options.rounds):
            for precision, list_ in seconds.items():
                steps = steps_of(options, model, batch, options.steps,
                                 *precision_flags(options, precision))
                list_ += [step["seconds"] for step in steps[1:]]
        usual = statistics.median(seconds["fp32"])
        for precision in PRECISIONS:
            one = statistics.median(seconds[precision])
            result = {"model": model, "batch": batch, "precision": precision,
                      "samples_per_second": batch / one, "fp32": batch / usual,
                      "ratio": usual / one, "met": usual / one >= 0.90}
            print(f"{model}, batch {batch}, {precision}: {batch / one:.2f} against "
                  f"{batch / usual:.2f} samples/s: {usual / one:.3f}   "
                  f"{runs.verdict(result['met'])}", flush=True)
            results.append(result)
    return results


def trajectories(options):
    """Bar: the loss of each of ten steps within 1 % of float32."""
    results = []
    for model, rate in (("alexnet", 0.01), ("vgg16", 0.01), ("resnet50", 0.1)):
        def losses(precision):
            steps = steps_of(options, model, options.batch, 10, "--lr", rate,
                             *precision_flags(options, precision))
            return [step["loss"] for step in steps]

        usual = losses("fp32")
        for precision in PRECISIONS:
            worst = max(abs(a - b) / b for a, b in zip(losses(precision), usual))
            result = {"model": model, "precision": precision, "worst": worst, "met": worst <= 0.01}
            print(f"{model}, {precision}: losses of ten steps differ by {100 * worst:.3f} % at "
                  f"most   {runs.verdict(result['met'])}", flush=True)
            results.append(result)
    return results


def accuracy(options):
    """Bar: the mean accuracy on Fashion-MNIST within 0.3 points of float32."""
    summary = os.path.join(options.directory, f"precision-{os.getpid()}.json")
    tops = {precision: [] for precision in ["fp32"] + PRECISIONS}
    for seed in range(1, options.seeds + 1):
        for precision, list_ in tops.items():
            runs.run_millrace(options, "train", "--model", "fashion_cnn", "--data",
                              f"idx:{IMAGES}", "--eval-data", f"idx:{IMAGES}", "--epochs",
                              options.epochs, "--batch", 128, "--lr", 0.1, "--nesterov",
                              "--weight-decay", 0.0005, "--lr-schedule", "cosine", "--quiet",
                              "--lr-warmup-steps", 200, "--seed", seed, "--summary", summary,
                              "--threads-per-device", options.threads,
                              *precision_flags(options, precision))
            with open(summary) as file:
                list_.append(100 * json.load(file)["evaluation"]["top1"])
            print(f"  seed {seed}, {precision}: {list_[-1]:.2f} %", flush=True)
    os.remove(summary)
    usual = statistics.mean(tops["fp32"])
    results = []
    for precision in PRECISIONS:
        mean = statistics.mean(tops[precision])
        result = {"precision": precision, "top1": tops[precision], "fp32": tops["fp32"],
                  "points": mean - usual, "met": abs(mean - usual) <= 0.3}
        print(f"Fashion-MNIST, {precision}: {mean:.2f} % against {usual:.2f} %: "
              f"{mean - usual:+.2f} points   {runs.verdict(result['met'])}", flush=True)
        results.append(result)
    return results


PARTS = {"memory": memory, "speed": speed, "trajectories": trajectories, "accuracy": accuracy}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="[all]")
    parser.add_argument("--arithmetic", default="auto", choices=["auto", "native", "storage"])
    parser.add_argument("--batch", type=int, default=8, help="of the ten steps [8]")
    parser.add_argument("--steps", type=int, default=4, help="of each timed run [4]")
    parser.add_argument("--rounds", type=int, default=2, help="of timed runs [2]")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    runs.add_common_flags(parser)
    options = parser.parse_args()
    os.makedirs(options.directory, exist_ok=True)
    results = {part: PARTS[part](options) for part in options.parts or PARTS}
    runs.save_json(options.json, results)
    if not all(result["met"] for part in results.values() for result in part):
        sys.exit(1)


if __name__ == "__main__":
    main()
