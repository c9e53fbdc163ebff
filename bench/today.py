#!/usr/bin/python3
"""Holds training steps, or with --inference forward passes, against the PyTorch of today, at its best.

PyTorch comes from the Python package index, in an environment of its own (tools/peer-environment). Its best
way is looked for first: eager or compiled, in rows of channels or channels last, with the usual
allocator or tcmalloc, in one process with all threads or one process a thread (gloo), two steps each behind
one that warms up. Then Millrace and that way take turns, a step each. The figures are the ratio of the
median steps and of the largest resident memory, of PyTorch's processes together. Face networks are
trained with ArcFace of 10 000 classes.

With --parted Millrace, too, divides the batch: over as many devices as there are threads, in one process or in
MPI's ranks, and PyTorch's ways are those of DistributedDataParallel.

On a machine that others use too, `--clock processor` compares processor time; threads that wait for each
other by spinning count as working there, so take --threads 1 with it.
"""
import argparse
import glob
import itertools
import json
import math
import os
import statistics
import subprocess
import sys

import millrace_runs as runs

BARS = {"resnet50:64": (1.7, 0.50), "vgg16:28": (3.0, 0.55), "alexnet:252": (1.8, 0.55),
        "iresnet50:64": (1.7, 0.50), "mobilefacenet:128": (1.7, 0.50)}
# Depthwise and grouped convolutions, by `--jobs` of their own.
DEPTHWISE = {job: (1.3, math.inf) for job in ("mobilenet_v2:32", "efficientnet_b0:32", "resnext50_32x4d:16")}
PARTED = {"resnet50:64": (1.7, math.inf)}
INFERENCE = {job: (1.5, math.inf) for job in ("resnet50:32", "mobilenet_v2:32", "efficientnet_b0:32")}
FACES = ("iresnet50", "mobilefacenet")
FACE_CLASSES = 10000
PEER = os.path.join(runs.ROOT, "bench", "peer_pytorch.py")


class Steps:
    """A process that runs a step when asked."""

    def __init__(self, command, clock, environment=None):
        self.clock = clock
        self.process = subprocess.Popen(command, env={**os.environ, **(environment or {})}, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.ready = self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("it ended before it answered")
        return json.loads(line)

    def step(self):
        before = self.processor_seconds()
        print("step", file=self.process.stdin, flush=True)
        wall = self.read()["seconds"]
        return wall if self.clock == "wall" else self.processor_seconds() - before

    def family(self):
        """The process and those it started."""
        found = [self.process.pid]
        for parent in found:
            try:
                with open(f"/proc/{parent}/task/{parent}/children") as file:
                    found += map(int, file.read().split())
            except OSError:
                pass
        return found

    def processor_seconds(self):
        total = 0
        for process in self.family():
            try:
                with open(f"/proc/{process}/stat") as file:
                    total += sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13]))
            except OSError:
                pass
        return total / os.sysconf("SC_CLK_TCK")

    def peak(self):
        """The largest resident memory so far, in bytes, of all processes."""
        total = 0
        for process in self.family():
            try:
                with open(f"/proc/{process}/status") as file:
                    total += sum(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
            except OSError:
                pass
        return total

    def end(self):
        print("quit", file=self.process.stdin, flush=True)
        self.process.wait()


def allocators():
    found = glob.glob("/usr/lib/*/libtcmalloc_minimal.so.4")
    return {"usual": {}, **({"tcmalloc": {"LD_PRELOAD": found[0]}} if found else {})}


def size_of(options, job):
    model, batch = job.split(":")
    image = ["--image", str(options.image)] if options.image else []
    return ["--model", model, "--batch", batch, *image,
            *(["--classes", str(FACE_CLASSES)] if model in FACES else [])]


def peer(options, job, way):
    compiled, layout, allocator, processes = way
    command = [options.python, "-B", PEER, "--server", *size_of(options, job), "--threads",
               str(options.threads // processes), "--processes", str(processes), "--layout", layout,
               *(["--inference"] if options.inference else [])]
    return Steps(command + (["--compile"] if compiled else []), options.clock, allocators()[allocator])


def millrace(options, job):
    """With --parted each of as many devices as there are threads takes its part of the batch."""
    model, batch = job.split(":")
    parts = options.threads if options.parted else 1
    launcher = ["mpirun", "--bind-to", "none", "-n", str(parts)] if options.parted == "ranks" else []
    devices = ["--devices", str(parts)] if options.parted == "devices" else []
    head = ["--head", "arcface"] if model in FACES else []
    return Steps([*launcher, os.path.join(options.build, "millrace"), "bench", "steps",
                  *size_of(options, f"{model}:{int(batch) // parts}"), *head, *devices,
                  "--threads-per-device", str(options.threads // parts),
                  *(["--inference"] if options.inference else [])], options.clock,
                 {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})


def describe(way):
    compiled, layout, allocator, processes = way
    return (f"{'compiled' if compiled else 'eager'}, {layout}, {allocator} allocator, "
            f"{processes} process{'es' if processes > 1 else ''}")


def ways_to_try(options):
    processes = (1, options.threads) if options.threads > 1 and not options.inference else (1,)
    if options.parted:
        processes = (options.threads,)
    words = options.ways.split(",") if options.ways else []
    ways = itertools.product((False, True), ("nchw", "nhwc"), allocators(), processes)
    return [way for way in ways if all(word in describe(way) for word in words)]


def best_way(options, job):
    ways = ways_to_try(options)
    if len(ways) == 1:
        return ways[0]
    times = {}
    for way in ways:
        try:
            process = peer(options, job, way)
            process.step()
            times[way] = min(process.step() for _ in range(2))
            process.end()
            print(f"  {describe(way)}: {times[way]:.3f} s", flush=True)
        except RuntimeError as error:
            print(f"  {describe(way)}: does not run, {error}", flush=True)
    if not times:
        sys.exit("PyTorch ran in no way.")
    return min(times, key=times.get)


def measure(options, job):
    print(job, flush=True)
    way = best_way(options, job)
    own = millrace(options, job)
    other = peer(options, job, way)
    seconds = [[], []]
    for number in range(options.rounds + 1):
        for process, list_ in zip((own, other), seconds):
            taken = process.step()
            if number > 0:
                list_.append(taken)
    memory = own.peak() / other.peak()
    torch = f"{other.ready['torch']} (torchvision {other.ready['torchvision']})"
    own.end()
    other.end()
    mine, theirs = map(statistics.median, seconds)
    spread = [(max(list_) - min(list_)) / statistics.median(list_) for list_ in seconds]
    bars = INFERENCE if options.inference else PARTED if options.parted else BARS | DEPTHWISE
    fast, small = bars.get(job, (1, math.inf))
    met = theirs / mine >= fast and memory <= small
    print(f"  Millrace {mine:.3f} s (spread {spread[0]:.0%}), PyTorch {torch} {theirs:.3f} s ({spread[1]:.0%}; "
          f"{describe(way)}): {theirs / mine:.2f} times as fast (bar {fast}), {memory:.2f} of the memory "
          f"(bar {small}): {runs.verdict(met)}", flush=True)
    return {"job": job, "ratio": theirs / mine, "memory": memory, "way": describe(way), "torch": torch,
            "seconds": mine, "peer_seconds": theirs, "met": met}


def processor():
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(runs.ROOT, "build"), help="build directory")
    parser.add_argument("--python", help="that has PyTorch [tools/peer-environment]")
    parser.add_argument("--jobs", help="MODEL:BATCH,… [those that have bars]")
    parser.add_argument("--inference", action="store_true", help="forward passes of trained networks")
    parser.add_argument("--parted", choices=["devices", "ranks"],
                        help="devices of one thread each, in a process or in MPI's ranks, against DistributedDataParallel")
    parser.add_argument("--rounds", type=int, default=5, help="steps of each")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--image", type=int, help="pixels [the network's usual]")
    parser.add_argument("--ways", help="only ways of PyTorch whose description has all these words, by commas")
    parser.add_argument("--clock", choices=["wall", "processor"], default="wall")
    parser.add_argument("--json", metavar="FILE", help="write the results there too")
    options = parser.parse_args()
    if options.parted and (options.inference or options.threads < 2):
        sys.exit("--parted trains, with --threads of at least 2.")
    options.jobs = options.jobs or ",".join(INFERENCE if options.inference else PARTED if options.parted else BARS)
    if not options.python:
        made = subprocess.run([os.path.join(runs.ROOT, "tools", "peer-environment")], check=True,
                              stdout=subprocess.PIPE, text=True)
        options.python = os.path.join(runs.ROOT, made.stdout.strip())
    print(f"{processor()}, {options.threads} threads")
    results = [measure(options, job) for job in options.jobs.split(",")]
    runs.save_json(options.json, results)
    return 0 if all(result["met"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
