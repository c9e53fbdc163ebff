#!/usr/bin/python3
"""Compares Millrace's loader with the PyTorch DataLoader on the same JPEG files.

Both decode, crop at random, flip and normalise 500 x 375 JPEGs to 224 x 224 with two workers.
Runs are interleaved and medians compared. Also measures reading OFRecord and RecordIO without
decoding, from the page cache. Needs python3-torch and python3-torchvision.

usage: data_loader_peer.py BUILD_DIRECTORY [--images N] [--rounds N] [--workers N]
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time


def measure_peer(folder, workers, images):
    import torch
    from torchvision import datasets, transforms

    torch.set_num_threads(1)
    data = datasets.ImageFolder(folder, transforms.Compose([
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ]))
    loader = torch.utils.data.DataLoader(data, batch_size=64, shuffle=True, num_workers=workers,
                                         drop_last=True, persistent_workers=True)
    done = 0
    start = None
    while done < images:
        for batch, _ in loader:
            if start is None:  # starting the worker processes is not counted
                workers_before = worker_seconds(loader)
                start = time.perf_counter()
                continue
            done += len(batch)
            if done >= images:
                break
    seconds = time.perf_counter() - start
    return done / seconds, 1e3 * (worker_seconds(loader) - workers_before) / done


def worker_seconds(loader):
    """Processor time of the worker processes so far."""
    ticks = 0
    for worker in loader._iterator._workers:
        with open(f"/proc/{worker.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def run(program, *arguments):
    output = subprocess.run([program, *map(str, arguments)], check=True, capture_output=True)
    return json.loads(output.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--images", type=int, default=1280)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    bench = os.path.join(options.build, "bench", "data_loader_bench")
    synth = os.path.join(options.build, "bench", "data_synth")

    with tempfile.TemporaryDirectory() as directory:
        folder = os.path.join(directory, "folder")
        sets = {"ofrecord": f"ofrecord:{directory}/ofrecord",
                "recordio": f"recordio:{directory}/set.rec"}
        run(synth, f"folder:{folder}", 640)
        for specification in sets.values():
            run(synth, specification, 4000)

        ours, peers = [], []
        for _ in range(options.rounds):
            run_ours = run(bench, "decode", f"folder:{folder}", options.workers, options.images)
            ours.append((run_ours["images_per_second"],
                         run_ours["processor_milliseconds_per_image"]))
            peers.append(measure_peer(folder, options.workers, options.images))
        speeds = [statistics.median(speed for speed, _ in runs) for runs in (ours, peers)]
        costs = [statistics.median(cost for _, cost in runs) for runs in (ours, peers)]
        result = {
            "workers": options.workers,
            "millrace_images_per_second": speeds[0],
            "pytorch_images_per_second": speeds[1],
            "ratio": speeds[0] / speeds[1],
            "millrace_processor_milliseconds_per_image": costs[0],
            "pytorch_processor_milliseconds_per_image": costs[1],
            "processor_ratio": costs[1] / costs[0],
        }
        for name, specification in sets.items():
            speeds = [run(bench, "read", specification)["gigabytes_per_second"]
                      for _ in range(options.rounds)]
            result[f"{name}_gigabytes_per_second"] = statistics.median(speeds)
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
