#!/usr/bin/python3
"""Holds predictions of `millrace plan --check` against runs: time per step and memory.

Each case profiles its programs here, predicts, runs, and compares; the table and the bars come at
the end. Cases with a link need root for tools/two-hosts and are left out without --links.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

import millrace_runs as runs

MEDIAN_BAR, WORST_BAR, MEMORY_BAR = 0.08, 0.15, 0.10

SHAPES = {
    "1 device": [],
    "2 data-parallel": ["--devices", "2"],
    "2 stages": ["--placement", "0:0.0:1", "--schedule", "1f1b-flush", "--microbatches", "4"],
    "3 stages": ["--placement", "0:0.0:1.0:2", "--schedule", "1f1b-flush", "--microbatches", "4",
                 "--threads-per-device", "1", "--oversubscribe"],
}
LINKED = {
    "2 hosts, data-parallel": ["--placement", "0:0,1:0"],
    "2 hosts, 2 stages": ["--placement", "0:0.1:0", "--schedule", "1f1b-flush", "--microbatches",
                          "4"],
}


def parse_report(text):
    """The JSON object in what a rank printed; launchers may print around it."""
    begin, end = text.find("{"), text.rfind("}")
    if begin < 0 or end < begin:
        raise ValueError(f"there is no report in: {text[:200]}")
    return json.loads(text[begin:end + 1])


def judge(rows):
    """Bars over all rows; each has "error", "arena_exact" and, where measured, "rss_error"."""
    errors = [abs(row["error"]) for row in rows]
    memory = [abs(row["rss_error"]) for row in rows if "rss_error" in row]
    result = {"median_error": statistics.median(errors), "worst_error": max(errors),
              "arena_exact": all(row["arena_exact"] for row in rows),
              "worst_rss_error": max(memory, default=0.0)}
    result["met"] = (result["median_error"] <= MEDIAN_BAR and result["worst_error"] <= WORST_BAR
                     and result["arena_exact"] and result["worst_rss_error"] <= MEMORY_BAR)
    return result


def check(options, model, shape, linked):
    arguments = ["plan", "--check", "--json", "--model", model, "--batch", str(options.batch),
                 "--steps", str(options.steps), "--rounds", str(options.rounds),
                 "--classes", str(options.classes), "--lr", "0.001", *shape]
    if options.threads and "--threads-per-device" not in shape:
        arguments += ["--threads-per-device", str(options.threads)]
    if options.image:
        arguments += ["--image", str(options.image)]
    if not linked:
        return parse_report(runs.run_millrace(options, *arguments))
    tool = os.path.join(runs.ROOT, "tools", "two-hosts")
    command = [tool, "--rate", options.rate, "--timeout", "1800", "--",
               os.path.join(options.build, "millrace"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nfailed: {done.stderr.strip()}")
    return parse_report(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    runs.add_common_flags(parser)
    parser.add_argument("--models", default="vgg16,resnet50")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", help="only these, by name, with semicolons")
    parser.add_argument("--links", action="store_true", help="also over a shaped link (root)")
    parser.add_argument("--rate", default="1gbit")
    options = parser.parse_args()
    cases = [(name, shape, False) for name, shape in SHAPES.items()]
    if options.links:
        cases += [(name, shape, True) for name, shape in LINKED.items()]
    if options.cases:
        wanted = [name.strip() for name in options.cases.split(";")]
        cases = [case for case in cases if case[0] in wanted]
    rows = []
    print(f"{'model':<12}{'case':<26}{'predicted s':>12}{'measured s':>12}{'error':>9}"
          f"{'estimate':>10}{'arena':>8}{'RSS error':>11}")
    for model in options.models.split(","):
        for name, shape, linked in cases:
            row = check(options, model, shape, linked)
            rows.append({"case": name, **row})
            memory = f"{100 * row['rss_error']:+.1f} %" if "rss_error" in row else "-"
            print(f"{model:<12}{name:<26}{row['predicted_step_seconds']:>12.4f}"
                  f"{row['measured_step_seconds']:>12.4f}{100 * row['error']:>+7.1f} %"
                  f"{100 * row['error_estimate']:>8.1f} %"
                  f"{'exact' if row['arena_exact'] else 'OFF':>8}{memory:>11}", flush=True)
    if not rows:
        sys.exit("There is no such case.")
    result = judge(rows)
    print(f"median error {100 * result['median_error']:.1f} % (bar {100 * MEDIAN_BAR:.0f} %), worst "
          f"{100 * result['worst_error']:.1f} % ({100 * WORST_BAR:.0f} %): "
          f"{runs.verdict(result['met'])}")
    runs.save_json(options.json, {"rows": rows, **result})
    sys.exit(0 if result["met"] else 1)


if __name__ == "__main__":
    main()
