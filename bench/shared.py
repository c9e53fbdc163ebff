#!/usr/bin/python3
"""Measures how much speed is left when others keep the machine busy.

Millrace and PyTorch train the same job in turns, a step each, alone and beside processes that
compute without end. A share is the speed beside neighbours divided by the speed alone, each a median
over rounds; every round has all of them, so that what else happens on the machine meets all alike.
The bar: Millrace keeps no smaller a share than PyTorch. With --before, the program of another
build takes turns too: alone, this one must not be 1 % slower.
"""
import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys

import millrace_runs as runs

NEIGHBOURS = [0, 1, 2]
SLOWEST_ALONE = 1.01
HERE = os.path.dirname(os.path.abspath(__file__))


class Trainer:
    """A process that runs a step when asked."""

    def __init__(self, command):
        self.command = command
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        self.read()
        self.step()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{' '.join(self.command)}\nended before it answered.")
        return json.loads(line)

    def step(self):
        print("step", file=self.process.stdin, flush=True)
        return self.read()["seconds"]

    def end(self):
        print("quit", file=self.process.stdin, flush=True)
        self.process.communicate()


class Neighbours:
    """Processes that compute without end, when told to."""

    def __init__(self, count):
        self.processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
                          for _ in range(count)]
        self.send(signal.SIGSTOP)

    def send(self, number):
        for process in self.processes:
            process.send_signal(number)

    @contextlib.contextmanager
    def busy(self):
        self.send(signal.SIGCONT)
        try:
            yield
        finally:
            self.send(signal.SIGSTOP)

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


def start(options):
    """The trainers by name."""
    model, batch = options.job.split(":")
    job = ["--model", model, "--batch", batch, "--image", str(options.image)]
    millrace = ["bench", "steps", *job, "--threads-per-device", str(options.threads)]
    commands = {
        "Millrace": [os.path.join(options.build, "millrace"), *millrace],
        "PyTorch": ["/usr/bin/python3", os.path.join(HERE, "peer_pytorch.py"), "--server", *job,
                    "--threads", str(options.threads)]}
    if options.before:
        commands["before"] = [os.path.join(options.before, "millrace"), *millrace]
    return {name: Trainer(command) for name, command in commands.items()}


def measure(options, trainers):
    """Median seconds of a step, by trainer and number of neighbours."""
    groups = [Neighbours(count) for count in NEIGHBOURS]
    seconds = {(name, count): [] for name in trainers for count in NEIGHBOURS}
    try:
        for _ in range(options.rounds):
            for count, group in zip(NEIGHBOURS, groups):
                with group.busy():
                    for name, trainer in trainers.items():
                        seconds[name, count] += [trainer.step() for _ in range(options.steps)]
    finally:
        for group in groups:
            group.end()
    return {key: statistics.median(values) for key, values in seconds.items()}


def judge(options, names, seconds):
    result = {"job": options.job, "image": options.image, "threads": options.threads, "shares": {},
              "seconds_alone": {name: seconds[name, 0] for name in names}, "met": True}
    for count in NEIGHBOURS[1:]:
        shares = {name: seconds[name, 0] / seconds[name, count] for name in names}
        met = shares["Millrace"] >= shares["PyTorch"]
        result["shares"][count] = shares
        result["met"] = result["met"] and met
        print(f"{count} busy neighbours: " +
              ", ".join(f"{name} keeps {share:.2f}" for name, share in shares.items()) +
              f": {runs.verdict(met)}")
    if options.before:
        ratio = seconds["Millrace", 0] / seconds["before", 0]
        met = ratio <= SLOWEST_ALONE
        result["alone_to_before"] = ratio
        result["met"] = result["met"] and met
        print(f"alone: {ratio:.3f} of the seconds before: {runs.verdict(met)}")
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(runs.ROOT, "build"), help="build directory")
    parser.add_argument("--before", metavar="DIR", help="build directory to be compared with")
    parser.add_argument("--job", default="resnet50:8", help="MODEL:BATCH")
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--threads", type=int, default=2, help="of each trainer")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=2, help="of each trainer in a round's part")
    parser.add_argument("--json", metavar="FILE", help="write the results there too")
    options = parser.parse_args()
    trainers = start(options)
    seconds = measure(options, trainers)
    for trainer in trainers.values():
        trainer.end()
    result = judge(options, list(trainers), seconds)
    runs.save_json(options.json, result)
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
