#!/usr/bin/python3
"""Measures how much a training step slows down while a checkpoint is written beside it.

One run with checkpoints: steps that overlapped a write are held against those of the same run
that did not. The first step is not counted. Two figures: the ratio of the medians, and the mean
of the overlapping steps with the pauses for the copy of the state added, so that no time that
the checkpoint took from training is left out.
"""
import argparse
import os
import shutil
import statistics
import sys

import millrace_runs as runs

BAR = 1.10


def compare(lines):
    """Lines of a metrics file. A step counts as written-beside if a write took half of it or
    more; should no write last that long, if a write touched it at all."""
    steps = runs.steps_after_first(lines)
    checkpoints = [line for line in lines if line["kind"] == "checkpoint"]
    free = [step["seconds"] for step in steps if step["checkpoint_seconds"] == 0]
    touched = [step for step in steps if step["checkpoint_seconds"] > 0]
    mostly = [step for step in touched if step["checkpoint_seconds"] >= step["seconds"] / 2]
    if not free or not touched or not checkpoints:
        raise ValueError(f"{len(free)} steps without and {len(touched)} with a checkpoint: "
                         "give more --steps or another --checkpoint-every")
    beside = [step["seconds"] for step in mostly or touched]
    last = steps[-1]["step"]
    pauses = [line["pause_seconds"] for line in checkpoints if line["step"] < last]
    usual = statistics.median(free)
    overlapping = [step["seconds"] for step in touched]
    ratio = statistics.median(beside) / usual
    whole = (sum(overlapping) + sum(pauses)) / len(overlapping) / usual
    return {
        "free_steps": len(free),
        "beside_steps": len(beside),
        "touched_steps": len(touched),
        "free_seconds_per_step": usual,
        "beside_seconds_per_step": statistics.median(beside),
        "ratio": ratio,
        "ratio_with_pauses": whole,
        "checkpoints": len(checkpoints),
        "bytes": checkpoints[0]["bytes"],
        "write_seconds": statistics.median(line["seconds"] for line in checkpoints),
        "pause_seconds": statistics.median(pauses),
        "longest_pause_seconds": max(pauses),
        "bar": BAR,
        "met": ratio <= BAR and whole <= BAR,
    }


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="vgg16")
    parser.add_argument("--batch", type=int, default=28)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--checkpoint-every", type=int, default=6)
    runs.add_common_flags(parser)
    options = parser.parse_args()
    if not 2 <= options.checkpoint_every < options.steps:
        parser.error("--checkpoint-every must be at least 2 and less than --steps")
    return options


def main():
    options = parse()
    checkpoints = os.path.join(options.directory, f"checkpoints-{os.getpid()}")
    metrics = f"{checkpoints}.jsonl"
    os.makedirs(options.directory, exist_ok=True)
    try:
        lines = runs.train(options, metrics, "--lr", "0.001", "--checkpoint", checkpoints,
                           "--checkpoint-every", options.checkpoint_every, "--keep", 1)
        result = {"model": options.model, "batch": options.batch, **compare(lines)}
    except ValueError as error:
        sys.exit(str(error))
    finally:
        shutil.rmtree(checkpoints, ignore_errors=True)
        if os.path.exists(metrics):
            os.remove(metrics)
    print(f"{options.model}, batch {options.batch}: {result['checkpoints']} checkpoints of "
          f"{result['bytes'] / 1e9:.3f} GB, {result['write_seconds']:.2f} s to write each, "
          f"training paused {result['pause_seconds']:.3f} s for the copy "
          f"({result['longest_pause_seconds']:.3f} s at most)")
    print(f"  no checkpoint   {result['free_seconds_per_step']:8.3f} s a step "
          f"({result['free_steps']} steps)")
    print(f"  while writing   {result['beside_seconds_per_step']:8.3f} s a step "
          f"({result['beside_steps']} steps)")
    print(f"  ratio           {result['ratio']:8.3f}, with the pauses "
          f"{result['ratio_with_pauses']:.3f}   bar {BAR:.2f} or less: "
          f"{runs.verdict(result['met'])}")
    runs.save_json(options.json, result)


if __name__ == "__main__":
    main()
