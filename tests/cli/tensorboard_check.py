"""Trains, goes on, and reads the event files with TensorBoard's own reader; run by tools/check-tensorboard.

usage: tensorboard_check.py PROGRAM
"""
import json
import os
import subprocess
import sys
import tempfile

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

TAGS = {"train/loss": "loss", "train/learning_rate": "learning_rate", "train/top1": "top1"}


def train(program, home, steps, *more):
    subprocess.run([program, "train", "--model", "fashion_cnn", "--steps", str(steps), "--batch", "8",
                    "--lr-schedule", "cosine", "--eval-data", "synthetic", "--eval-every", "2",
                    "--checkpoint", os.path.join(home, "run"), "--checkpoint-every", "4",
                    "--tensorboard", os.path.join(home, "board"), "--metrics",
                    os.path.join(home, "metrics.jsonl"), "--quiet", *more], check=True)


def fail(sentence):
    sys.exit(f"WRONG: {sentence}")


def main():
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as home:
        train(program, home, 4)
        train(program, home, 8, "--resume")
        board = EventAccumulator(os.path.join(home, "board"), size_guidance={"scalars": 0, "tensors": 0})
        board.Reload()
        with open(os.path.join(home, "metrics.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        steps = {line["step"]: line for line in lines if line["kind"] == "step"}
        for tag, name in TAGS.items():
            own = {event.step: event.value for event in board.Scalars(tag)}
            if own.keys() != steps.keys():
                fail(f"{tag} has steps {sorted(own)}, not {sorted(steps)}")
            for step, value in own.items():
                if abs(value - steps[step][name]) > 1e-6 * max(1, abs(value)):
                    fail(f"{tag} is {value} in step {step}, not {steps[step][name]}")
        if sorted({event.step for event in board.Scalars("valid/top1")}) != [2, 4, 6, 8]:
            fail("evaluations are missing")
        text = tensor_util.make_ndarray(board.Tensors("configuration")[-1].tensor_proto)[0].decode()
        if "model: fashion_cnn" not in text:
            fail(f"the configuration is {text!r}")
        pictures = sorted(tag for tag in board.Tags()["images"])
        if pictures != [f"predictions/{number}" for number in range(1, 9)]:
            fail(f"the pictures are {pictures}")
        for tag in pictures:
            if [(event.step, event.width, event.height) for event in board.Images(tag)] != \
                    [(step, 28, 28) for step in (2, 4, 6, 8)]:
                fail(f"{tag} has {board.Images(tag)}")
        rows = tensor_util.make_ndarray(board.Tensors("predictions")[-1].tensor_proto)[0].decode().splitlines()
        if len(rows) != 10 or any(row.count("|") != 7 for row in rows):
            fail(f"the table of predictions is {rows}")
    print(f"TensorBoard reads {len(steps)} steps, {len(TAGS)} scalars of them as --metrics has them, "
          "4 evaluations, 8 pictures of each with a table, and the configuration")


if __name__ == "__main__":
    main()
