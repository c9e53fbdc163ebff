#!/usr/bin/python3
"""Holds predictions of `millrace plan --check` against runs: time per step, memory, and order.

Jobs (models, devices, schedules, heads) are drawn by a seed. Each profiles its programs here, predicts,
runs, and compares; the table and the bars come at the end. Two hosts joined by a shaped link need root
for tools/two-hosts and are left out without --links.
"""
import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys

import millrace_runs as runs

MEDIAN_BAR, WORST_BAR, MEMORY_BAR = 0.05, 0.15, 0.10
DIFFERENT = 0.10  # two jobs whose measured times differ by more have to come in the right order

# Pixels and samples of a device with which a step takes from tenths of a second to a second.
MODELS = {"alexnet": (224, 16), "vgg16": (96, 8), "resnet18": (112, 8), "resnet50": (96, 8),
          "mobilenet_v2": (112, 8), "squeezenet1_1": (160, 8), "densenet121": (64, 8)}
FACES = {"iresnet18": (112, 8), "iresnet50": (112, 4), "mobilefacenet": (112, 16)}
SCHEDULES = ["gpipe", "1f1b-flush", "zero-bubble", "interleaved", "1f1b", "ssp", "2bw"]
HEADS = [["--head", "arcface", "--head-parallel", way] for way in ("dp", "mp")] + [
    ["--head", "cosface", "--head-parallel", "pfc", "--sample-rate", "0.2"]]
FACE_CLASSES = 20000

LINKED = {
    "2 hosts, data-parallel": ["--placement", "0:0,1:0"],
    "2 hosts, 2 stages": ["--placement", "0:0.1:0", "--schedule", "1f1b-flush", "--microbatches",
                          "4"],
}


def pipeline(schedule, micro_batches):
    placement = "0:0.0:1.0:0.0:1" if schedule == "interleaved" else "0:0.0:1"
    return ["--placement", placement, "--schedule", schedule, "--microbatches", str(micro_batches)]


def draw(count, seed):
    """(model, name, flags) of each of so many different jobs; kinds of places take turns."""
    chance = random.Random(seed)
    jobs = {}
    for kind in itertools.cycle(["one", "data", "stages", "head", "stages", "divided"]):
        if len(jobs) == count:
            return list(jobs.values())
        model = chance.choice(list(FACES if kind == "head" else MODELS))
        image, batch = {**MODELS, **FACES}[model]
        flags, name = [], "1 device"
        if kind == "data":
            flags, name = ["--devices", "2"], "2 data-parallel"
        elif kind == "stages":
            schedule, micro = chance.choice(SCHEDULES), chance.choice([2, 4])
            flags, name = pipeline(schedule, micro), f"{schedule}, {micro}"
        elif kind == "head":
            head, devices = chance.choice(HEADS), chance.choice([1, 2])
            flags = ["--devices", str(devices), "--classes", str(FACE_CLASSES), *head]
            name = f"{head[3]} on {devices}"
        elif kind == "divided":
            way = chance.choice(["hybrid", "model"])
            flags, name = ["--devices", "2", "--parallel", way], f"2 {way}"
        flags = ["--image", str(image), "--batch", str(batch), *flags]
        jobs.setdefault((model, name), (model, name, flags))


def parse_report(text):
    """The JSON object in what a rank printed; launchers may print around it."""
    begin, end = text.find("{"), text.rfind("}")
    if begin < 0 or end < begin:
        raise ValueError(f"there is no report in: {text[:200]}")
    return json.loads(text[begin:end + 1])


def reversed_pairs(rows):
    """Pairs that differ by more than DIFFERENT, and how many of them were predicted in the other order."""
    pairs = wrong = 0
    for a, b in itertools.combinations(rows, 2):
        measured = a["measured_step_seconds"] / b["measured_step_seconds"]
        if max(measured, 1 / measured) <= 1 + DIFFERENT:
            continue
        pairs += 1
        wrong += (measured > 1) != (a["predicted_step_seconds"] > b["predicted_step_seconds"])
    return pairs, wrong


def judge(rows):
    """Bars over all rows; each has "error", both times, "arena_exact" and, where measured, "rss_error"."""
    errors = [abs(row["error"]) for row in rows]
    memory = [abs(row["rss_error"]) for row in rows if "rss_error" in row]
    pairs, wrong = reversed_pairs(rows)
    result = {"median_error": statistics.median(errors), "worst_error": max(errors),
              "pairs": pairs, "reversed": wrong,
              "arena_exact": all(row["arena_exact"] for row in rows),
              "worst_rss_error": max(memory, default=0.0)}
    result["met"] = (result["median_error"] <= MEDIAN_BAR and result["worst_error"] <= WORST_BAR
                     and wrong == 0 and result["arena_exact"]
                     and result["worst_rss_error"] <= MEMORY_BAR)
    return result


def check(options, model, shape, linked):
    arguments = ["plan", "--check", "--json", "--model", model, "--steps", str(options.steps),
                 "--rounds", str(options.rounds), "--lr", "0.0001", *shape]
    if "--classes" not in shape:
        arguments += ["--classes", str(options.classes)]
    if options.threads:
        arguments += ["--threads-per-device", str(options.threads)]
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
    parser.set_defaults(classes=100)
    parser.add_argument("--draws", type=int, default=24, help="jobs")
    parser.add_argument("--seed", type=int, default=1, help="draws them")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--links", action="store_true", help="also over a shaped link (root)")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--list", action="store_true", help="only print the jobs")
    runs.add_part_flags(parser)
    options = parser.parse_args()
    jobs = [(*job, False) for job in draw(options.draws, options.seed)]
    if options.links:
        jobs += [(model, name, ["--batch", "8", *shape], True) for model in ("vgg16", "resnet50")
                 for name, shape in LINKED.items()]
    jobs = [] if options.join else runs.chosen_part(options, jobs)
    if options.list:
        for model, name, shape, _ in jobs:
            print(f"{model:<16}{name:<20}{' '.join(shape)}")
        return
    rows = runs.joined_rows(options)
    print(f"{'model':<16}{'job':<24}{'predicted s':>12}{'measured s':>12}{'error':>9}"
          f"{'estimate':>10}{'arena':>8}{'RSS error':>11}")
    for model, name, shape, linked in jobs:
        row = check(options, model, shape, linked)
        rows.append({"case": name, **row})
        memory = f"{100 * row['rss_error']:+.1f} %" if "rss_error" in row else "-"
        print(f"{model:<16}{name:<24}{row['predicted_step_seconds']:>12.4f}"
              f"{row['measured_step_seconds']:>12.4f}{100 * row['error']:>+7.1f} %"
              f"{100 * row['error_estimate']:>8.1f} %"
              f"{'exact' if row['arena_exact'] else 'OFF':>8}{memory:>11}", flush=True)
    result = judge(rows)
    print(f"median error {100 * result['median_error']:.1f} % (bar {100 * MEDIAN_BAR:.0f} %), worst "
          f"{100 * result['worst_error']:.1f} % ({100 * WORST_BAR:.0f} %), {result['reversed']} of "
          f"{result['pairs']} pairs in the other order: {runs.verdict(result['met'])}")
    runs.save_json(options.json, {"seed": options.seed, "rows": rows, **result})
    sys.exit(0 if result["met"] else 1)


if __name__ == "__main__":
    main()
