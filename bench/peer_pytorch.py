#!/usr/bin/python3
"""Trains a torchvision model, or a face network with ArcFace, in PyTorch the way `millrace train` trains
its own.

Each step prints one JSON line {"step", "seconds", "loss"}; the last line holds the median
samples_per_second after the warm-up and peak_rss_bytes of this process.

With --server the steps are run one at a time on request, so that a benchmark can alternate
between this process and another: a first line {"ready": true, ...} says that the model stands,
then "step" on standard input runs one step and prints its line, and "quit" (or the end of the
input) prints the last line and ends.

With --processes the batch is divided over that many, which DistributedDataParallel joins (gloo); the
first of them speaks, and the others do what it does.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torchvision

from peer_protocol import emit, peak_rss_bytes, positive, serve

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden"))
import face_models

MODELS = ["alexnet", "vgg16", "vgg16_bn",
          "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d", "wide_resnet50_2",
          "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "densenet121", "squeezenet1_1",
          *face_models.NAMES]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=MODELS, default="resnet50")
    parser.add_argument("--batch", type=positive, default=64)
    parser.add_argument("--steps", type=positive, default=6, help="ignored with --server")
    parser.add_argument("--warmup", type=int, default=1, help="steps left out of the median")
    parser.add_argument("--threads", type=positive, default=2)
    parser.add_argument("--layout", choices=["nchw", "nhwc"], default="nchw",
                        help="nhwc is PyTorch's channels-last")
    parser.add_argument("--inference", action="store_true", help="forward passes in torch.inference_mode")
    parser.add_argument("--compile", action="store_true", help="by torch.compile, of PyTorch 2")
    parser.add_argument("--classes", type=positive, default=1000)
    parser.add_argument("--image", type=positive, help="pixels [224; 112 for face networks]")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=1e-4)
    parser.add_argument("--label-smoothing", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server", action="store_true", help="run a step for each line 'step'")
    parser.add_argument("--processes", type=positive, default=1, help="that --batch is divided over")
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--meeting", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.batch % arguments.processes:
        parser.error(f"{arguments.processes} processes cannot share a batch of {arguments.batch} equally")
    if not arguments.image:
        arguments.image = 112 if arguments.model in face_models.NAMES else 224
    return arguments


class Classifier(torch.nn.Module):
    """A network and its loss."""

    def __init__(self, arguments):
        super().__init__()
        build = getattr(torchvision.models, arguments.model)
        self.network = build(weights=None, num_classes=arguments.classes)
        self.loss = torch.nn.CrossEntropyLoss(label_smoothing=arguments.label_smoothing)

    def forward(self, images, labels):
        return self.loss(self.network(images), labels)


class FaceClassifier(torch.nn.Module):
    """A face network with ArcFace: cosines to the classes' centres, times 64, the label's after its angle
    has grown by 0.5."""

    def __init__(self, arguments):
        super().__init__()
        self.network = face_models.build(arguments.model, arguments.image)
        self.centres = torch.nn.Parameter(torch.randn(arguments.classes, face_models.EMBEDDING) * 0.01)

    def forward(self, images, labels):
        normalize = torch.nn.functional.normalize
        cosines = torch.nn.functional.linear(normalize(self.network(images)), normalize(self.centres))
        own = cosines.gather(1, labels[:, None]).clamp(-1 + 1e-6, 1 - 1e-6)
        logits = cosines.scatter(1, labels[:, None], torch.cos(torch.acos(own) + 0.5))
        return torch.nn.functional.cross_entropy(64 * logits, labels)


def join_processes(arguments):
    """Starts the others and meets them."""
    others = []
    if arguments.rank == 0:
        arguments.meeting = "file://" + os.path.join(tempfile.mkdtemp(), "meeting")
        for rank in range(1, arguments.processes):
            others.append(subprocess.Popen([sys.executable, "-B", *sys.argv, "--rank", str(rank), "--meeting",
                                            arguments.meeting], stdin=subprocess.DEVNULL))
    torch.distributed.init_process_group("gloo", init_method=arguments.meeting, rank=arguments.rank,
                                         world_size=arguments.processes)
    return others


def follow(job):
    """What another process than the first does: steps, until it is told to end."""
    order = torch.zeros(1)
    while True:
        torch.distributed.broadcast(order, 0)
        if order.item() == 0:
            return
        job.run()


class Job:
    """A model, its optimizer and one batch that every step uses again."""

    def __init__(self, arguments):
        torch.set_num_threads(arguments.threads)
        self.others = join_processes(arguments) if arguments.processes > 1 else []
        torch.manual_seed(arguments.seed)
        layout = torch.channels_last if arguments.layout == "nhwc" else torch.contiguous_format
        made = FaceClassifier if arguments.model in face_models.NAMES else Classifier
        self.model = made(arguments).to(memory_format=layout).train(not arguments.inference)
        joined = self.model.network if arguments.inference else self.model
        if arguments.processes > 1:
            joined = torch.nn.parallel.DistributedDataParallel(joined)
        self.compute = torch.compile(joined) if arguments.compile else joined
        torch.manual_seed(arguments.seed + arguments.rank)
        batch = arguments.batch // arguments.processes
        self.images = torch.randn(batch, 3, arguments.image, arguments.image).to(memory_format=layout)
        self.labels = torch.randint(arguments.classes, (batch,))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=arguments.lr,
                                         momentum=arguments.momentum,
                                         weight_decay=arguments.weight_decay)
        self.arguments = arguments
        self.seconds = []

    def tell(self, order):
        if self.arguments.processes > 1:
            torch.distributed.broadcast(torch.tensor([order]), 0)

    def run(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.compute(self.images, self.labels)
        loss.backward()
        self.optimizer.step()
        if self.arguments.processes > 1:
            torch.distributed.barrier()
        return loss.item()

    def step(self):
        start = time.perf_counter()
        self.tell(1.0)
        value = self.run()
        self.seconds.append(time.perf_counter() - start)
        return {"step": len(self.seconds), "seconds": self.seconds[-1], "loss": value}

    @torch.inference_mode()
    def infer(self):
        start = time.perf_counter()
        value = float(self.compute(self.images).sum())
        self.seconds.append(time.perf_counter() - start)
        return {"step": len(self.seconds), "seconds": self.seconds[-1], "sum": value}

    def end(self):
        self.tell(0.0)
        for other in self.others:
            other.wait()

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
    if arguments.rank > 0:
        return follow(job)
    step = job.infer if arguments.inference else job.step
    if arguments.server:
        serve(step, {"model": arguments.model, "layout": arguments.layout,
                         "parameters": sum(weight.numel() for weight in job.model.parameters()),
                         "torch": torch.__version__, "torchvision": torchvision.__version__})
    else:
        for _ in range(arguments.steps):
            emit(step())
    job.end()
    emit(job.last_line())


if __name__ == "__main__":
    main()
