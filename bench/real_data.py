#!/usr/bin/python3
"""Compares training on real JPEG records with training on synthetic data.

Makes an OFRecord set of 500 x 375 JPEGs unless it is there, then trains the same model with the
same batch and threads on both in turn. The first step of each run is not counted. Decoding
shares the processor with the training step, so this shows what the whole input path costs.
"""
import argparse
import os
import statistics

import millrace_runs as runs

BAR = 0.95


def compare(synthetic, real):
    """Each a list of runs, each run a list of step lines without the first."""
    def seconds(side):
        return [step["seconds"] for steps in side for step in steps]

    waits = [step["wait_seconds"] for steps in real for step in steps]
    medians = statistics.median(seconds(synthetic)), statistics.median(seconds(real))
    rounds = [statistics.median(seconds([first])) / statistics.median(seconds([second]))
              for first, second in zip(synthetic, real)]
    return {
        "synthetic_seconds_per_step": medians[0],
        "real_seconds_per_step": medians[1],
        "ratio": medians[0] / medians[1],
        "ratio_of_each_round": rounds,
        "waited_seconds": sum(waits),
        "waited_share": sum(waits) / sum(seconds(real)),
        "longest_wait_seconds": max(waits),
        "bar": BAR,
        "met": medians[0] / medians[1] >= BAR,
    }


def make_set(options):
    name = f"jpeg-{options.images}-{options.width}x{options.height}-{options.classes}"
    path = os.path.join(options.directory, name)
    if not os.path.isdir(path):
        # Made under another name, so that an interrupted run does not leave half a set.
        partial = f"{path}.partial-{os.getpid()}"
        runs.run_millrace(options, "data", "synth", f"ofrecord:{partial}", "--count",
                          options.images, "--classes", options.classes, "--width", options.width,
                          "--height", options.height)
        os.rename(partial, path)
    return f"ofrecord:{path}"


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=6, help="of each run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--images", type=int, default=1024, help="in the set")
    parser.add_argument("--width", type=int, default=500, help="of the images in the set")
    parser.add_argument("--height", type=int, default=375)
    parser.add_argument("--workers", type=int, default=2)
    runs.add_common_flags(parser)
    options = parser.parse_args()
    if options.steps < 2 or options.rounds < 1:
        parser.error("--steps must be at least 2 and --rounds at least 1")
    return options


def main():
    options = parse()
    os.makedirs(options.directory, exist_ok=True)
    sources = ["synthetic", make_set(options)]
    measured = {source: [] for source in sources}
    metrics = os.path.join(options.directory, f"real-data-{os.getpid()}.jsonl")
    for turn in range(options.rounds):
        for source in sources if turn % 2 == 0 else reversed(sources):
            lines = runs.train(options, metrics, "--data", source, "--workers", options.workers)
            measured[source].append(runs.steps_after_first(lines))
    os.remove(metrics)
    result = {"model": options.model, "batch": options.batch, "rounds": options.rounds,
              "steps_per_round": options.steps - 1, "workers": options.workers,
              **compare(*measured.values())}
    print(f"{options.model}, batch {options.batch}, {options.rounds} rounds of "
          f"{options.steps - 1} steps, {options.workers} workers")
    print(f"  synthetic  {result['synthetic_seconds_per_step']:8.3f} s a step")
    print(f"  real JPEG  {result['real_seconds_per_step']:8.3f} s a step, waited "
          f"{result['waited_seconds']:.3f} s in all ({100 * result['waited_share']:.1f} %), "
          f"{result['longest_wait_seconds']:.3f} s at most")
    print(f"  ratio      {result['ratio']:8.3f}   bar {BAR:.2f} or more: "
          f"{runs.verdict(result['met'])}")
    runs.save_json(options.json, result)


if __name__ == "__main__":
    main()
