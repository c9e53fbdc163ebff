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


def peer_images_per_second(folder, workers, images):
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
    while True:
        for batch, _ in loader:
            if start is None:  # starting the worker processes is not counted
                start = time.perf_counter()
                continue
            done += len(batch)
            if done >= images:
                return done / (time.perf_counter() - start)


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
            ours.append(run(bench, "decode", f"folder:{folder}", options.workers,
                            options.images)["images_per_second"])
            peers.append(peer_images_per_second(folder, options.workers, options.images))
        result = {
            "workers": options.workers,
            "millrace_images_per_second": statistics.median(ours),
            "pytorch_images_per_second": statistics.median(peers),
            "ratio": statistics.median(ours) / statistics.median(peers),
        }
        for name, specification in sets.items():
            speeds = [run(bench, "read", specification)["gigabytes_per_second"]
                      for _ in range(options.rounds)]
            result[f"{name}_gigabytes_per_second"] = statistics.median(speeds)
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
