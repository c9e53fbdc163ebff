#!/usr/bin/python3
"""Compares Millrace's loader with PyTorch's DataLoader on the same JPEG files.

Both decode, crop at random, flip and normalise 500 x 375 JPEGs to 224 x 224 with two workers.
Runs are interleaved and medians compared. PyTorch is each of --pythons: that of today, which
tools/peer-environment installs, and Debian's (python3-torch, python3-torchvision). What
libjpeg-turbo alone takes for the same parts of the images is the limit of a loader. Also measures
reading OFRecord and RecordIO without decoding, from the page cache.

usage: data_loader_peer.py BUILD_DIRECTORY [--images N] [--rounds N] [--workers N] [--pythons P,…]
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

BAR = 4
BATCH = 64
BATCHES_BEFORE = 5  # of both: starting up is not counted


def measure_peer(folder, workers, images):
    import PIL
    import torch
    import torchvision
    from torchvision import datasets, transforms

    torch.set_num_threads(1)
    data = datasets.ImageFolder(folder, transforms.Compose([
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ]))
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=workers,
                                         drop_last=True, persistent_workers=True)
    before, done = BATCHES_BEFORE, 0
    while done < images:
        for batch, _ in loader:
            if before > 0:
                before -= 1
                workers_before = worker_seconds(loader)
                start = time.perf_counter()
                continue
            done += len(batch)
            if done >= images:
                break
    seconds = time.perf_counter() - start
    return {"images_per_second": done / seconds,
            "processor_milliseconds_per_image": 1e3 * (worker_seconds(loader) - workers_before) / done,
            "versions": f"PyTorch {torch.__version__}, torchvision {torchvision.__version__}, "
                        f"Pillow {PIL.__version__}"}


def worker_seconds(loader):
    """Processor time of the worker processes so far."""
    ticks = 0
    for worker in loader._iterator._workers:
        with open(f"/proc/{worker.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def run(program, *arguments):
    output = subprocess.run([program, *map(str, arguments)], check=True, stdout=subprocess.PIPE)
    return json.loads(output.stdout)


def middle(measured):
    """Medians of runs, with what they call themselves."""
    return {name: statistics.median(run[name] for run in measured) if name != "versions" else value
            for name, value in measured[0].items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--images", type=int, default=2560)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pythons", help="that have PyTorch [that of tools/peer-environment, and Debian's]")
    parser.add_argument("--peer", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        print(json.dumps(measure_peer(options.peer, options.workers, options.images)))
        return
    if not options.pythons:
        made = subprocess.run([os.path.join(runs.ROOT, "tools", "peer-environment")], check=True,
                              stdout=subprocess.PIPE, text=True)
        options.pythons = f"{os.path.join(runs.ROOT, made.stdout.strip())},/usr/bin/python3"
    pythons = options.pythons.split(",")
    bench = os.path.join(options.build, "bench", "data_loader_bench")
    synth = os.path.join(options.build, "bench", "data_synth")

    with tempfile.TemporaryDirectory() as directory:
        folder = os.path.join(directory, "folder")
        sets = {"ofrecord": f"ofrecord:{directory}/ofrecord",
                "recordio": f"recordio:{directory}/set.rec"}
        run(synth, f"folder:{folder}", 640)
        for specification in sets.values():
            run(synth, specification, 4000)

        ours, limits, peers = [], [], [[] for _ in pythons]
        for _ in range(options.rounds):
            for mode, list_ in (("decode", ours), ("limit", limits)):
                list_.append(run(bench, mode, f"folder:{folder}", options.workers, options.images))
            for python, list_ in zip(pythons, peers):
                list_.append(run(python, "-B", __file__, options.build, "--peer", folder, "--images",
                                 options.images // 2, "--workers", options.workers))
        own, limit = middle(ours), middle(limits)
        best = max(map(middle, peers), key=lambda peer: peer["images_per_second"])
        ratio = own["images_per_second"] / best["images_per_second"]
        result = {
            "workers": options.workers,
            "millrace": own,
            "libjpeg": limit,
            "pytorch": [middle(peer) for peer in peers],
            "ratio": ratio,
            "of_limit": own["images_per_second"] / limit["images_per_second"],
            "ratio_at_the_limit": limit["images_per_second"] / best["images_per_second"],
            "met": ratio >= BAR,
        }
        for name, specification in sets.items():
            speeds = [run(bench, "read", specification)["gigabytes_per_second"]
                      for _ in range(options.rounds)]
            result[f"{name}_gigabytes_per_second"] = statistics.median(speeds)
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
