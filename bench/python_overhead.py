#!/usr/bin/python3
"""What Python costs: the same job by the command line and by the package in turn, one picture by both
languages, and PyTorch in the same process.

Needs build/venv/python and build/venv/torch with the package (`make check-python`, `make bench-python`).
Steps are told as processor seconds of the whole run too, which other work on the machine disturbs less.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

import millrace_runs as runs

JOB = """
import sys, time, millrace as mr
model, image, batch, steps, threads = sys.argv[1], *map(int, sys.argv[2:6])
net = mr.model(model, image=image)
job = mr.Job(net, mr.data("synthetic").train, batch=batch, steps=steps, threads=threads, checkpoint=sys.argv[6])
times = []
job.train(on_step=lambda report: times.append(report.seconds))
print(times)
"""

PICTURE = """
import sys, time, numpy as np, millrace as mr
net = mr.model(weights=sys.argv[1], threads=int(sys.argv[2]))
picture = np.zeros((1, net.image, net.image, 3), np.uint8)
times = []
for _ in range(int(sys.argv[3])):
    began = time.perf_counter()
    net.predict(picture)
    times.append(time.perf_counter() - began)
print(times)
"""

# Millrace and PyTorch take turns, a step each; an empty name leaves the other out.
TURNS = """
import sys, time, millrace as mr
first, second, steps, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
own, other = [], []
if second:
    import torch, torchvision
    torch.set_num_threads(threads)
    network = torchvision.models.resnet18()
    images, labels = torch.randn(16, 3, 96, 96), torch.randint(0, 1000, (16,))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
def torch_step():
    began = time.perf_counter()
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(network(images), labels).backward()
    optimizer.step()
    other.append(time.perf_counter() - began)
if first:
    job = mr.Job(mr.model("resnet18", image=96), mr.data("synthetic").train, batch=16, steps=steps, threads=threads)
    ended = [time.perf_counter()]
    def on_step(report):
        own.append(time.perf_counter() - ended[0])
        if second:
            torch_step()
        ended[0] = time.perf_counter()
    job.train(on_step=on_step)
else:
    for _ in range(steps):
        torch_step()
print([own, other])
"""


def run(command):
    """What it prints last, its processor seconds and its largest resident memory in bytes."""
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    lines = process.stdout.read().splitlines()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(map(str, command[:2]))} failed.")
    return lines[-1] if lines else "", usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def compare_runs(options, python):
    work = os.path.join(options.directory, "python")
    os.makedirs(work, exist_ok=True)
    metrics = os.path.join(work, "metrics.jsonl")
    found = {"command line": [], "Python": []}
    for turn in range(options.rounds + 1):
        for way in found:
            checkpoint = os.path.join(work, f"run-{way[0]}{turn}")
            if way == "Python":
                text, cpu, memory = run([python, "-c", JOB, options.model, options.image, options.batch,
                                         options.steps, options.threads, checkpoint])
                times = json.loads(text)
            else:
                _, cpu, memory = run([os.path.join(options.build, "millrace"), "train", "--model", options.model,
                                      "--image", options.image, "--batch", options.batch, "--steps", options.steps,
                                      "--threads-per-device", options.threads, "--quiet", "--metrics", metrics,
                                      "--checkpoint", checkpoint])
                with open(metrics) as file:
                    times = [line["seconds"] for line in map(json.loads, file) if line["kind"] == "step"]
            if turn > 0:  # the first fills caches
                found[way].append((statistics.median(times[1:]), cpu, memory))
    best = {way: [min(values) for values in zip(*rows)] for way, rows in found.items()}
    ratios = [b / a for a, b in zip(best["command line"], best["Python"])]
    print(f"Python against the command line: step {ratios[0]:.3f} (bar 1.01), processor time {ratios[1]:.3f}, "
          f"memory {ratios[2]:.3f} (bar 1.02)")
    return {"step": ratios[0], "processor": ratios[1], "memory": ratios[2]}


def compare_picture(options, python):
    weights = os.path.join(options.directory, "python", "picture.safetensors")
    runs.run_millrace(options, "train", "--model", options.model, "--image", options.image, "--batch", 2, "--steps", 1,
                      "--quiet", "--save-weights", weights)
    best = {"C++": [], "Python": []}
    for _ in range(options.rounds):
        best["C++"] += json.loads(run([os.path.join(options.build, "bench", "predict_picture"), weights,
                                       options.threads, options.pictures])[0])
        best["Python"] += json.loads(run([python, "-c", PICTURE, weights, options.threads, options.pictures])[0])
    lowest = {way: 1000 * statistics.quantiles(times, n=10)[0] for way, times in best.items()}
    print(f"one picture: C++ {lowest['C++']:.2f} ms, Python {lowest['Python']:.2f} ms "
          f"(bar: 1 ms more; a tenth of the calls is as quick)")
    return lowest


def compare_torch(options, python):
    alone, turns = {}, {}
    for _ in range(options.rounds):
        for first, second, found in (("own", "", alone), ("", "torch", alone), ("own", "torch", turns)):
            own, other = json.loads(run([python, "-c", TURNS, first, second, options.steps, options.threads or 2])[0])
            for name, times in (("Millrace", own[1:]), ("PyTorch", other[1:])):
                if times:
                    found.setdefault(name, []).extend(times)
    ratios = {name: statistics.quantiles(turns[name], n=4)[0] / statistics.quantiles(alone[name], n=4)[0]
              for name in alone}
    print("in one process, in turn, against alone: " + ", ".join(f"{name} {ratio:.3f}" for name, ratio in ratios.items())
          + " (bar 1.05)")
    return ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    runs.add_common_flags(parser)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pictures", type=int, default=100)
    parser.add_argument("--only", nargs="*", default=["runs", "picture", "torch"])
    options = parser.parse_args()
    options.image = options.image or 96
    result = {}
    venv = os.path.join(options.build, "venv")
    if "runs" in options.only:
        result["runs"] = compare_runs(options, os.path.join(venv, "python", "bin", "python"))
    if "picture" in options.only:
        result["picture"] = compare_picture(options, os.path.join(venv, "python", "bin", "python"))
    if "torch" in options.only:
        result["torch"] = compare_torch(options, os.path.join(venv, "torch", "bin", "python"))
    runs.save_json(options.json, result)


if __name__ == "__main__":
    main()
