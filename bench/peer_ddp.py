#!/usr/bin/python3
"""A model in PyTorch DistributedDataParallel (gloo), two processes with one thread each.

    bench/peer_ddp.py --model resnet50 --batch 16 [--steps 3] [--processes 2] [--layout nhwc]

Prints one JSON object: samples per second of the median step after a warm-up, all processes
together. `--batch` counts samples per process, as Millrace's does per device.
"""
import argparse
import json
import os
import statistics
import time


def worker(rank, arguments, queue):
    import torch
    import torch.distributed
    import torchvision

    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(arguments.port)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=arguments.processes)
    torch.manual_seed(0)
    model = getattr(torchvision.models, arguments.model)()
    layout = torch.channels_last if arguments.layout == "nhwc" else torch.contiguous_format
    model = model.to(memory_format=layout)
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    images = torch.randn(arguments.batch, 3, 224, 224).to(memory_format=layout)
    labels = torch.randint(0, 1000, (arguments.batch,))
    seconds = []
    for _ in range(arguments.steps + 1):
        torch.distributed.barrier()
        start = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        torch.distributed.barrier()
        seconds.append(time.perf_counter() - start)
    if rank == 0:
        queue.put(seconds[1:])
    torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--layout", choices=["nchw", "nhwc"], default="nchw",
                        help="nhwc is PyTorch's channels-last")
    parser.add_argument("--port", type=int, default=29517)
    arguments = parser.parse_args()
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [
        context.Process(target=worker, args=(rank, arguments, queue))
        for rank in range(arguments.processes)
    ]
    for process in processes:
        process.start()
    seconds = queue.get()
    for process in processes:
        process.join()
    median = statistics.median(seconds)
    samples = arguments.batch * arguments.processes
    print(
        json.dumps(
            {"model": arguments.model, "seconds": seconds, "samples_per_second": samples / median}
        )
    )


if __name__ == "__main__":
    main()
