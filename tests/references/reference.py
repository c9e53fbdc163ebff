"""What the references share: the program, files for it, and a comparison that tells what it saw."""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "golden"))

import safetensors_file  # noqa: E402

# What `--augment none` does to a byte of a small grey image and of a face, and to those of a small
# coloured image: mean and deviation.
GREY = (0.286, 0.353)
FACE = (0.5, 0.5)
COLOUR = (numpy.array([0.485, 0.456, 0.406]).reshape(3, 1, 1),
          numpy.array([0.229, 0.224, 0.225]).reshape(3, 1, 1))


def small(channels):
    return GREY if channels == 1 else COLOUR


class Program:
    """The program `millrace`, and a directory for its files that goes when the script ends."""

    def __init__(self, path, patience=300):
        self.path = os.path.abspath(path)
        self.patience = patience  # seconds for each run
        self.home = tempfile.TemporaryDirectory(prefix="millrace-reference-")

    def file(self, name):
        return os.path.join(self.home.name, name)

    def run(self, *arguments):
        command = [self.path, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=self.patience,
                              check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\nended with {done.returncode}: {done.stderr}")
        return done.stdout

    def train(self, *arguments):
        """Trains on one thread with direct convolutions; returns the lines of steps."""
        metrics = self.file("metrics.jsonl")
        self.run("train", "--quiet", "--threads-per-device", 1, "--conv-algo", "direct",
                 "--metrics", metrics, *arguments)
        with open(metrics, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        return [line for line in lines if line["kind"] == "step"]

    def checkpoint(self, directory, step, which):
        """The tensors of `weights` or `optimizer` after a step."""
        path = os.path.join(directory, f"step-{step:08d}", f"{which}.safetensors")
        return safetensors_file.load(path)[0]

    def save_images(self, name, images, labels):
        """Images of bytes (N, C, H, W) as a data set for --data."""
        path = self.file(name)
        safetensors_file.save(path, {"images": numpy.ascontiguousarray(images.transpose(0, 2, 3, 1)),
                                     "labels": labels.astype(numpy.int32)})
        return "raw:" + path

    def save_weights(self, name, model):
        path = self.file(name)
        state = {key: value.detach().float().numpy() for key, value in model.state_dict().items()
                 if not key.endswith("num_batches_tracked")}
        safetensors_file.save(path, state)
        return path


class Comparison:
    """Differences in norm, each of one tensor relative to a scale; remembers the worst."""

    def __init__(self, title, tolerance):
        self.title = title
        self.tolerance = tolerance
        self.worst = (0.0, "nothing")
        self.count = 0
        self.failures = []

    def add(self, name, actual, expected, scale=None):
        actual = numpy.asarray(actual, numpy.float64)
        expected = numpy.asarray(expected, numpy.float64)
        if actual.shape != expected.shape:
            self.failures.append(f"{name} has shape {actual.shape} instead of {expected.shape}")
            return
        if scale is None:
            scale = numpy.linalg.norm(expected)
        difference = numpy.linalg.norm(actual - expected)
        relative = difference / scale if scale > 0 else (0.0 if difference == 0 else numpy.inf)
        self.count += 1
        if not relative <= self.tolerance:
            self.failures.append(f"{name} differs by {relative:.2e}")
        if not relative <= self.worst[0]:
            self.worst = (relative, name)

    def require(self, holds, sentence):
        if not holds:
            self.failures.append(sentence)

    def finish(self):
        """Prints the worst, and returns whether all was well."""
        if self.count == 0:
            self.failures.append("nothing was compared")
        print(f"{self.title}: {self.count} compared, worst {self.worst[0]:.1e} ({self.worst[1]}), "
              f"allowed {self.tolerance:.0e}", flush=True)
        for failure in self.failures[:20]:
            print(f"  WRONG: {failure}", flush=True)
        return not self.failures


def parser(description):
    result = argparse.ArgumentParser(description=description.split("\n")[0])
    result.add_argument("--program", required=True, help="the program millrace")
    result.add_argument("--seed", type=int, default=int(os.environ.get("MILLRACE_REFERENCE_SEED", 1)))
    return result


def finish(comparisons):
    sys.exit(0 if all([comparison.finish() for comparison in comparisons]) else 1)
