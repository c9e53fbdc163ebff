#!/usr/bin/python3
"""Trains a torchvision model in PyTorch the way `millrace train` trains its own.

Each step prints one JSON line {"step", "seconds", "loss"}; the last line holds the median
samples_per_second after the warm-up and peak_rss_bytes of this process.

With --server the steps are run one at a time on request, so that a benchmark can alternate
between this process and another: a first line {"ready": true, ...} says that the model stands,
then "step" on standard input runs one step and prints its line, and "quit" (or the end of the
input) prints the last line and ends.
"""

import argparse
import statistics
import time

import torch
import torchvision

from peer_protocol import emit, peak_rss_bytes, positive, serve

MODELS = ["alexnet", "vgg16", "vgg16_bn",
          "resnet18", "resnet34", "resnet50", "resnet101", "resnet152"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=MODELS, default="resnet50")
    parser.add_argument("--batch", type=positive, default=64)
    parser.add_argument("--steps", type=positive, default=6, help="ignored with --server")
    parser.add_argument("--warmup", type=int, default=1, help="steps left out of the median")
    parser.add_argument("--threads", type=positive, default=2)
    parser.add_argument("--layout", choices=["nchw", "nhwc"], default="nchw",
                        help="nhwc is PyTorch's channels-last")
    parser.add_argument("--classes", type=positive, default=1000)
    parser.add_argument("--image", type=positive, default=224)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=1e-4)
    parser.add_argument("--label-smoothing", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server", action="store_true", help="run a step for each line 'step'")
    return parser.parse_args()


class Job:
    """A model, its optimizer and one batch that every step uses again."""

    def __init__(self, arguments):
        torch.set_num_threads(arguments.threads)
        torch.manual_seed(arguments.seed)
        layout = torch.channels_last if arguments.layout == "nhwc" else torch.contiguous_format
        build = getattr(torchvision.models, arguments.model)
        self.model = build(weights=None, num_classes=arguments.classes)
        self.model = self.model.to(memory_format=layout).train()
        self.images = torch.randn(arguments.batch, 3, arguments.image, arguments.image)
        self.images = self.images.to(memory_format=layout)
        self.labels = torch.randint(arguments.classes, (arguments.batch,))
        self.loss = torch.nn.CrossEntropyLoss(label_smoothing=arguments.label_smoothing)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=arguments.lr,
                                         momentum=arguments.momentum,
                                         weight_decay=arguments.weight_decay)
        self.arguments = arguments
        self.seconds = []

    def step(self):
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.model(self.images), self.labels)
        loss.backward()
        self.optimizer.step()
        value = loss.item()
        self.seconds.append(time.perf_counter() - start)
        return {"step": len(self.seconds), "seconds": self.seconds[-1], "loss": value}

    def last_line(self):
        timed = self.seconds[self.arguments.warmup:] or self.seconds
        speed = self.arguments.batch / statistics.median(timed) if timed else None
        return {"model": self.arguments.model, "batch": self.arguments.batch,
                "layout": self.arguments.layout, "steps": len(self.seconds),
                "samples_per_second": speed,
                "peak_rss_bytes": peak_rss_bytes()}


def main():
    arguments = parse_arguments()
    job = Job(arguments)
    if arguments.server:
        serve(job.step, {"model": arguments.model, "layout": arguments.layout,
                         "parameters": sum(weight.numel() for weight in job.model.parameters()),
                         "torch": torch.__version__})
    else:
        for _ in range(arguments.steps):
            emit(job.step())
    emit(job.last_line())


if __name__ == "__main__":
    main()
