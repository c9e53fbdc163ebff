#!/usr/bin/python3
"""Tries every plan of a small job on two devices, and holds the one predicted best against the best.

One device with all cores, two data-parallel devices, and two stages with every schedule and number
of micro-batches, each with the same samples a step. Every plan is predicted from a profile and run.
"""
import argparse
import sys

import millrace_runs as runs
import prediction

BAR = 0.02

DRAINED = ["gpipe", "1f1b-flush", "zero-bubble"]
UNDRAINED = ["1f1b", "ssp", "2bw"]


def plans(micro_batches):
    """(name, flags, devices) of every plan."""
    yield "1 device", ["--devices", "1"], 1
    yield "2 data-parallel", ["--devices", "2"], 2
    for schedule in DRAINED + UNDRAINED:
        for count in micro_batches:
            if schedule == "2bw" and count < 2:
                continue
            yield (f"{schedule}, {count}", ["--placement", "0:0.0:1", "--schedule", schedule,
                                            "--microbatches", str(count)], 2)


def judge(rows):
    """Rows have "name", "predicted" and "measured" seconds of a step."""
    chosen = min(rows, key=lambda row: row["predicted"])
    best = min(rows, key=lambda row: row["measured"])
    loss = chosen["measured"] / best["measured"] - 1
    return {"chosen": chosen["name"], "best": best["name"], "loss": loss,
            "met": loss <= BAR + 1e-9}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    runs.add_common_flags(parser)
    parser.set_defaults(image=64, classes=100)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--samples", type=int, default=16, help="of a step")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--microbatches", default="1,2,4,8")
    options = parser.parse_args()
    rows = []
    print(f"{'plan':<20}{'predicted s':>12}{'measured s':>12}{'error':>9}")
    for name, flags, devices in plans([int(m) for m in options.microbatches.split(",")]):
        options.batch = options.samples // devices
        row = prediction.check(options, options.model, flags, False)
        rows.append({"name": name, "predicted": row["predicted_step_seconds"],
                     "measured": row["measured_step_seconds"]})
        print(f"{name:<20}{rows[-1]['predicted']:>12.4f}{rows[-1]['measured']:>12.4f}"
              f"{100 * row['error']:>+7.1f} %", flush=True)
    result = judge(rows)
    print(f"predicted best: {result['chosen']}; measured best: {result['best']}; the choice loses "
          f"{100 * result['loss']:.1f} % (bar {100 * BAR:.0f} %): {runs.verdict(result['met'])}")
    runs.save_json(options.json, {"rows": rows, **result})
    sys.exit(0 if result["met"] else 1)


if __name__ == "__main__":
    main()
