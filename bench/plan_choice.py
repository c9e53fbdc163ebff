#!/usr/bin/python3
"""Holds the plans that `millrace plan --auto --cluster here` chooses against all plans of small jobs.

One device with all cores, two data-parallel devices, and two stages with every schedule and number
of micro-batches, each with the same samples a step, are trained in turn, and so is the chosen plan: all for a
few steps, those that come near the fastest for longer. At the end the chosen one and the best of the others are trained again, alternately.
"""
import argparse
import json
import os
import random
import statistics
import sys
import tempfile

import millrace_runs as runs
import prediction

BAR = 0.03  # of the median over the jobs
NEAR = 0.4  # of the fastest in a few steps: what is further off is not trained for longer
RUN_SECONDS, MOST_STEPS = 0.6, 300
CHOSEN = "chosen"

# Pixels and samples of a step of which the drawn jobs take one each.
JOBS = {"resnet18": ([32, 64], [8, 16, 32]), "alexnet": ([64, 96], [16, 32]),
        "vgg16": ([32], [8, 16]), "mobilenet_v2": ([32, 64], [8, 16, 32]),
        "squeezenet1_1": ([64], [8, 16, 32]), "mobilefacenet": ([48, 112], [8, 16]),
        "fashion_cnn": ([28], [16, 32, 64])}

DRAINED = ["gpipe", "1f1b-flush", "zero-bubble"]
UNDRAINED = ["1f1b", "ssp", "2bw"]


def draw(count, seed):
    """(model, pixels, samples) of each of so many jobs, different ones as long as there are."""
    every = [(model, image, samples) for model, (images, batches) in JOBS.items()
             for image in images for samples in batches]
    random.Random(seed).shuffle(every)
    return [every[i % len(every)] for i in range(count)]


def plans(samples, micro_batches, stale):
    """(name, flags, devices) of every plan of steps of so many samples.

    None has micro-batches of one sample, of which a batch norm may see one value, so that its job diverges.
    """
    yield "1 device", ["--devices", "1"], 1
    yield "2 data-parallel", ["--devices", "2"], 2
    yield "2 hybrid", ["--devices", "2", "--parallel", "hybrid"], 2
    for schedule in DRAINED + (UNDRAINED if stale else []):
        for count in micro_batches:
            if samples // count < 2 or (schedule in ("2bw", "zero-bubble") and count < 2):
                continue
            yield (f"{schedule}, {count}", ["--placement", "0:0.0:1", "--schedule", schedule,
                                            "--microbatches", str(count)], 2)


def flags_of(report, plan_file):
    """What `train` needs to run the plan of a report of `plan --json`."""
    flags = ["--plan", plan_file]
    for name, value in report["flags"].items():
        flags += [name, str(int(value) if isinstance(value, float) else value)]
    return flags


def best_of_others(rows):
    """Rows have "name" and "measured": seconds of a step in several runs."""
    others = [row for row in rows if row["name"] != CHOSEN]
    return min(others, key=lambda row: statistics.median(row["measured"]))


def near_the_fastest(rows):
    """The chosen plan and those that may be the fastest, by a look at each."""
    limit = (1 + NEAR) * min(row["look"] for row in rows)
    return [row for row in rows if row["name"] == CHOSEN or row["look"] <= limit]


def judge(chosen, best):
    """Seconds of a step in alternate runs of the chosen plan and of the best of the others."""
    loss = statistics.median(chosen) / statistics.median(best) - 1
    return {"chosen_seconds": statistics.median(chosen), "best_seconds": statistics.median(best),
            "loss": loss, "met": loss <= BAR + 1e-9}


def job_flags(options, model):
    classes = 10 if model == "fashion_cnn" else options.classes
    flags = ["--model", model, "--classes", classes]
    if options.image:
        flags += ["--image", options.image]
    if options.conv_algo:
        flags += ["--conv-algo", options.conv_algo]
    return flags


def choose(options, model, plan_file):
    flags = ["--global-batch", options.samples, "--rounds", options.rounds, "--output", plan_file]
    if options.finalists:
        flags += ["--finalists", options.finalists]
    return prediction.parse_report(runs.run_millrace(
        options, "plan", "--auto", *(["--allow-stale"] if options.stale else []), "--cluster", "here",
        "--json", *job_flags(options, model), *flags))


def steps_of_run(options, step_seconds):
    """As many as fill a while: a run of short steps would measure the machine's unrest."""
    return min(MOST_STEPS, max(options.steps, round(RUN_SECONDS / step_seconds)))


def measure(options, model, flags, directory):
    """The median of the steps of one run; None if the program refuses the plan."""
    summary = os.path.join(directory, "summary.json")
    done = runs.run_millrace(
        options, "train", *job_flags(options, model), "--lr", "0.001", "--steps", options.run_steps,
        "--quiet", "--summary", summary, *flags, may_refuse=True)
    if done is None:
        return None
    with open(summary) as file:
        return json.load(file)["seconds_per_step"]["median"]


def try_model(options, model, directory):
    plan_file = os.path.join(directory, "plan.json")
    report = choose(options, model, plan_file)
    shape = report["search"]["best"][0]["shape"]
    print(f"{model}: chosen {shape}, predicted {report['predicted_seconds_per_step']:.4f} s",
          flush=True)
    options.run_steps = steps_of_run(options, report["predicted_seconds_per_step"])
    rows = [{"name": CHOSEN, "flags": flags_of(report, plan_file), "measured": []}]
    for name, flags, devices in plans(options.samples, [int(m) for m in options.microbatches.split(",")],
                                      options.stale):
        rows.append({"name": name, "measured": [],
                     "flags": flags + ["--batch", str(options.samples // devices)]})
    options.run_steps = options.steps
    for row in rows:
        row["look"] = measure(options, model, row["flags"], directory)
    refused = [row["name"] for row in rows if row["look"] is None]
    if CHOSEN in refused:
        sys.exit(f"{model}: the chosen plan, {shape}, is refused.")
    if refused:
        print(f"  refused: {'; '.join(refused)}", flush=True)
    rows = [row for row in rows if row["name"] not in refused]
    left = near_the_fastest(rows)
    options.run_steps = steps_of_run(options, min(row["look"] for row in rows))
    for _ in range(options.repeats):
        for row in left:
            row["measured"].append(measure(options, model, row["flags"], directory))
    for row in rows:
        if not row["measured"]:
            row["measured"].append(row["look"])
    for row in sorted(rows, key=lambda row: statistics.median(row["measured"])):
        print(f"  {row['name']:<20}{statistics.median(row['measured']):>10.4f} s", flush=True)
    best = best_of_others(left if len(left) > 1 else rows)
    again = {CHOSEN: [], best["name"]: []}
    for _ in range(options.finals):
        for row in (rows[0], best):
            again[row["name"]].append(measure(options, model, row["flags"], directory))
    result = judge(again[CHOSEN], again[best["name"]])
    print(f"  in turn: chosen {result['chosen_seconds']:.4f} s, {best['name']} "
          f"{result['best_seconds']:.4f} s; the choice loses {100 * result['loss']:.1f} % "
          f"(bar {100 * BAR:.0f} %): {runs.verdict(result['met'])}", flush=True)
    finalists = [{"shape": one["shape"], "estimated": one["estimated"],
                  "predicted": one["predicted"], "trained": one.get("trained_seconds_per_step")}
                 for part in ("best", "others") for one in report["search"][part]
                 if "predicted" in one]
    return {"model": model, "image": options.image, "samples": options.samples, "chosen": shape, "best": best["name"],
            "predicted_seconds": report["predicted_seconds_per_step"], "finalists": finalists,
            "rows": [{"name": row["name"], "look": row["look"], "measured": row["measured"]}
                     for row in rows],
            "again": again, **result}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    runs.add_common_flags(parser)
    parser.set_defaults(image=64, classes=100)
    parser.add_argument("--model", default="resnet18", help="one or several, with commas")
    parser.add_argument("--jobs", type=int, help="draw so many jobs instead, by --seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stale", action="store_true", help="also plans with --allow-stale")
    parser.add_argument("--samples", type=int, default=16, help="of a step")
    parser.add_argument("--steps", type=int, default=8, help="of a look, and at least")
    parser.add_argument("--rounds", type=int, default=5, help="of the planner's measurements")
    parser.add_argument("--finalists", type=int, help="plans that the planner measures")
    parser.add_argument("--repeats", type=int, default=2, help="longer runs of plans near the fastest")
    parser.add_argument("--finals", type=int, default=5, help="runs of the chosen and the best")
    parser.add_argument("--microbatches", default="1,2,4,8")
    parser.add_argument("--conv-algo", help="as in `millrace train`")
    runs.add_part_flags(parser)
    options = parser.parse_args()
    results = runs.joined_rows(options)
    jobs = ([(model, options.image, options.samples) for model in options.model.split(",")]
            if options.jobs is None else draw(options.jobs, options.seed))
    jobs = [] if options.join else runs.chosen_part(options, jobs)
    with tempfile.TemporaryDirectory() as directory:
        for model, options.image, options.samples in jobs:
            results.append(try_model(options, model, directory))
            runs.save_json(options.json, {"rows": results})  # another job may be cut off
    losses = [result["loss"] for result in results]
    met = statistics.median(losses) <= BAR + 1e-9
    print(f"{len(results)} jobs: the choice loses {100 * statistics.median(losses):.1f} % (median, bar "
          f"{100 * BAR:.0f} %), {100 * max(losses):.1f} % at most: {runs.verdict(met)}")
    runs.save_json(options.json, {"rows": results, "median_loss": statistics.median(losses),
                                  "met": met})
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
