#!/usr/bin/python3
"""Trains a face-recognition classifier alone in PyTorch: the peer of `millrace bench head`.

Random embeddings and labels, a centre for each identity, ArcFace's margin, SGD with momentum.
Mode mp uses every identity: the normalised centres times the embeddings, softmax, autograd, and
torch.optim.SGD over all centres. Mode pfc does what the Partial FC paper (arXiv 2203.15565)
describes: the identities of the batch and a uniform sample of others are picked, their centres
and momentum are copied out, trained for the step, and copied back. With --update dense the
sample is instead taken inside autograd and torch.optim.SGD goes over all centres.

Speaks the protocol of bench/peer_pytorch.py: a line {"ready": true, ...}, then "step" on standard
input runs a step and prints {"step", "seconds", "loss"}, and "quit" prints a last line with
samples_per_second and peak_rss_bytes.
"""

import argparse
import statistics
import time

import torch
from torch.nn import functional

from peer_protocol import emit, peak_rss_bytes, positive, serve


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--classes", type=positive, default=125000)
    parser.add_argument("--mode", choices=["mp", "pfc"], default="mp")
    parser.add_argument("--update", choices=["sampled", "dense"], default="sampled")
    parser.add_argument("--sample-rate", type=float, default=0.1)
    parser.add_argument("--batch", type=positive, default=128)
    parser.add_argument("--dimension", type=positive, default=512)
    parser.add_argument("--threads", type=positive, default=2)
    parser.add_argument("--margin", type=float, default=0.5)
    parser.add_argument("--scale", type=float, default=64.0)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def margin_loss(embeddings, centres, labels, arguments):
    """The loss of embeddings against centres, of which `labels` are the right ones."""
    logits = functional.linear(functional.normalize(embeddings), functional.normalize(centres))
    logits = logits.clamp(-1, 1)
    rows = torch.arange(len(labels))
    target = torch.cos(torch.acos(logits[rows, labels]) + arguments.margin)
    logits = logits.index_put((rows, labels), target)
    return functional.cross_entropy(logits * arguments.scale, labels)


class Dense:
    """Every identity takes part in every step."""

    def __init__(self, arguments):
        self.arguments = arguments
        centres = torch.normal(0, 0.01, (arguments.classes, arguments.dimension))
        self.centres = torch.nn.Parameter(centres)
        self.optimizer = torch.optim.SGD([self.centres], lr=arguments.lr,
                                         momentum=arguments.momentum,
                                         weight_decay=arguments.weight_decay)

    def step(self, embeddings, labels):
        self.optimizer.zero_grad(set_to_none=True)
        loss = margin_loss(embeddings, self.centres, labels, self.arguments)
        loss.backward()
        self.optimizer.step()
        return loss


def pick(labels, arguments):
    """The sampled identities in order, and where among them the labels are."""
    positives = torch.unique(labels)
    count = max(int(arguments.sample_rate * arguments.classes), len(positives))
    chances = torch.rand(arguments.classes)
    chances[positives] = 2.0
    sample = torch.topk(chances, count).indices.sort().values
    return sample, torch.searchsorted(sample, labels)


class DenselyUpdatedSample(Dense):
    """A sample takes part; the optimizer goes over all."""

    def step(self, embeddings, labels):
        sample, places = pick(labels, self.arguments)
        self.optimizer.zero_grad(set_to_none=True)
        loss = margin_loss(embeddings, self.centres[sample], places, self.arguments)
        loss.backward()
        self.optimizer.step()
        return loss


class Sample:
    """A sample takes part, and only its centres and momentum are read and written."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.centres = torch.normal(0, 0.01, (arguments.classes, arguments.dimension))
        self.momentum = torch.zeros_like(self.centres)

    def step(self, embeddings, labels):
        arguments = self.arguments
        sample, places = pick(labels, arguments)
        centres = torch.nn.Parameter(self.centres.index_select(0, sample))
        optimizer = torch.optim.SGD([centres], lr=arguments.lr, momentum=arguments.momentum,
                                    weight_decay=arguments.weight_decay)
        optimizer.state[centres]["momentum_buffer"] = self.momentum.index_select(0, sample)
        loss = margin_loss(embeddings, centres, places, arguments)
        loss.backward()
        optimizer.step()
        self.centres.index_copy_(0, sample, centres.data)
        self.momentum.index_copy_(0, sample, optimizer.state[centres]["momentum_buffer"])
        return loss


class Job:
    """A classifier, and one batch that every step uses again."""

    def __init__(self, arguments):
        torch.set_num_threads(arguments.threads)
        torch.manual_seed(arguments.seed)
        self.arguments = arguments
        sampled = Sample if arguments.update == "sampled" else DenselyUpdatedSample
        self.head = (Dense if arguments.mode == "mp" else sampled)(arguments)
        self.embeddings = torch.randn(arguments.batch, arguments.dimension, requires_grad=True)
        self.labels = torch.randint(arguments.classes, (arguments.batch,))
        self.seconds = []

    def step(self):
        start = time.perf_counter()
        self.embeddings.grad = None
        loss = self.head.step(self.embeddings, self.labels).item()
        self.seconds.append(time.perf_counter() - start)
        return {"step": len(self.seconds), "seconds": self.seconds[-1], "loss": loss}

    def last_line(self):
        timed = self.seconds[1:] or self.seconds
        speed = self.arguments.batch / statistics.median(timed) if timed else None
        return {"classes": self.arguments.classes, "mode": self.arguments.mode,
                "steps": len(self.seconds), "samples_per_second": speed,
                "peak_rss_bytes": peak_rss_bytes()}


def main():
    job = Job(parse_arguments())
    serve(job.step, {"torch": torch.__version__})
    emit(job.last_line())


if __name__ == "__main__":
    main()
