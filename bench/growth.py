#!/usr/bin/python3
"""How the cost of a training step grows: with the batch, the image, the identities of a head, the stages of a
pipeline and the devices that share the cores. Each point is the median of --rounds runs, taken in turns; each
curve is held against a model of one sentence.

    bench/growth.py --curves batch,image --json a.json
    bench/growth.py --join a.json b.json --table docs/scaling.md --picture docs/pictures/growth.svg

The second form measures nothing: it writes the table between the two marks of the page, and the picture.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile

import growth_picture
import millrace_runs as runs

CORES = len(os.sched_getaffinity(0))
MARKS = ("<!-- made by bench/growth.py -->", "<!-- end -->")
NETWORK = ["--model", "resnet18", "--classes", "100"]
MICRO_BATCHES = 8


class Curve:
    """Points, how one is run, and what a step should take: some numbers of each point, times constants that are
    fitted to what was measured."""

    def __init__(self, title, unit, points, run, terms, model):
        self.title, self.unit, self.points, self.run = title, unit, points, run
        self.terms, self.model = terms, model


def processor_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def train(options, steps, *flags):
    """Seconds of the median step, and processor seconds of one, both without the first."""
    used = []
    for count in (1, steps + 1):
        with tempfile.TemporaryDirectory() as home:
            metrics = os.path.join(home, "metrics")
            before = processor_seconds()
            runs.run_millrace(options, "train", *NETWORK, "--steps", count, "--quiet", "--oversubscribe",
                              "--metrics", metrics, *flags)
            used.append(processor_seconds() - before)
            with open(metrics) as file:
                lines = [json.loads(line) for line in file]
    seconds = statistics.median(line["seconds"] for line in lines if line["kind"] == "step" and line["step"] > 1)
    return {"seconds": seconds, "processor": max(0.0, (used[1] - used[0]) / steps)}


def head(options, steps, classes, rate, storage):
    command = [os.path.join(options.build, "millrace"), "bench", "head-steps", "--classes", classes,
               "--sample-rate", rate, "--threads", CORES, "--head-dtype", storage]
    lines = subprocess.run(list(map(str, command)), input="step\n" * (steps + 1), text=True, check=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    steps = [json.loads(line)["seconds"] for line in lines if '"seconds"' in line]
    return {"seconds": statistics.median(steps[1:])}


def stages(count):
    return ".".join(f"0:{device}" for device in range(count))


CURVES = {
    "batch": Curve(
        "batch (ResNet-18, 64 pixels)", "samples", [1, 2, 4, 8, 16, 32, 64, 128, 256],
        lambda o, n: train(o, 3 if n > 32 else 8, "--batch", n, "--image", 64, "--threads-per-device", CORES),
        lambda n: (1, n), "a + b · batch"),
    "image": Curve(
        "image (ResNet-18, batch 4)", "pixels a side", [64, 96, 128, 192, 256, 320, 448],
        lambda o, n: train(o, 4, "--batch", 4, "--image", n, "--threads-per-device", CORES),
        lambda n: (1, n * n), "a + b · pixels²"),
    "head": Curve(
        "identities of a head (batch 128, all of them, fp32)", "identities",
        [1000, 3000, 10000, 30000, 100000, 300000, 1000000],
        lambda o, n: head(o, 3 if n > 100000 else 10, n, 1, "fp32"),
        lambda n: (1, n), "a + b · identities"),
    "sampled head": Curve(
        "identities of a head (a tenth of them, bf16)", "identities",
        [1000, 10000, 100000, 1000000, 3000000, 8000000],
        lambda o, n: head(o, 3 if n > 1000000 else 10, n, 0.1, "bf16"),
        lambda n: (1, n), "a + b · identities"),
    "stages": Curve(
        f"stages (ResNet-18, 64 pixels, 64 samples a stage, {MICRO_BATCHES} micro-batches)", "stages",
        [1, 2, 3, 4, 6, 8],
        lambda o, n: train(o, 5, "--batch", 64, "--image", 64, "--threads-per-device", 1, "--microbatches",
                           MICRO_BATCHES, *(["--placement", stages(n)] if n > 1 else [])),
        lambda n: (n * max((MICRO_BATCHES + n - 1) / (MICRO_BATCHES * n), 1 / CORES),),
        "a · p · max((m + p − 1) / (m · p), 1 / cores), for p stages of a thread and m micro-batches"),
    "devices": Curve(
        "devices (ResNet-18, 64 pixels, 64 samples in all, a thread each)", "devices", [1, 2, 3, 4, 6, 8],
        lambda o, n: train(o, 5, "--global-batch", 64 - 64 % n, "--image", 64, "--threads-per-device", 1,
                           "--devices", n),
        lambda n: (max(1 / n, 1 / CORES), n - 1), "a · max(1 / devices, 1 / cores) + b · (devices − 1)"),
}


def measure(options, name):
    curve = CURVES[name]
    taken = [[] for _ in curve.points]
    for _ in range(options.rounds):
        for point, list_ in zip(curve.points, taken):
            list_.append(curve.run(options, point))
    rows = []
    for point, list_ in zip(curve.points, taken):
        row = {key: statistics.median(run[key] for run in list_) for key in list_[0]}
        rows.append({"point": point, **row})
        print(name, rows[-1], flush=True)
    return {"curve": name, "rows": rows}


def fitted(curve, rows):
    """What the model gives for each point: least squares of relative errors, no constant below zero."""
    terms = [[value / row["seconds"] for value in curve.terms(row["point"])] for row in rows]
    constants = solve(terms)
    if min(constants) < 0:
        constants = [0.0 if value < 0 else value for value in constants]
        kept = [i for i, value in enumerate(constants) if value > 0]
        for i, value in zip(kept, solve([[row[i] for i in kept] for row in terms])):
            constants[i] = value
    return [sum(c * t for c, t in zip(constants, curve.terms(row["point"]))) for row in rows]


def solve(terms):
    """Constants that make each row's sum as near to 1 as they can; one or two of them."""
    if len(terms[0]) == 1:
        return [sum(t[0] for t in terms) / sum(t[0] * t[0] for t in terms)]
    aa, ab, bb = (sum(t[i] * t[j] for t in terms) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = (sum(t[i] for t in terms) for i in (0, 1))
    determinant = aa * bb - ab * ab
    return [(a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant]


def milliseconds(seconds):
    return f"{1e3 * seconds:.3g}" if seconds < 1 else f"{1e3 * seconds:.0f}"


def table(results):
    lines = []
    for result in results:
        curve, rows = CURVES[result["curve"]], result["rows"]
        modelled = fitted(curve, rows)
        shares = "processor" in rows[0] and result["curve"] in ("stages", "devices")
        lines += [f"### Over {curve.title}", "", f"Model: {curve.model}.", ""]
        lines.append(f"| {curve.unit} | step, ms | model, ms | off |" + (" computing | waiting |" if shares else ""))
        lines.append("|---:|---:|---:|---:|" + ("---:|---:|" if shares else ""))
        for row, model in zip(rows, modelled):
            line = (f"| {row['point']:,} | {milliseconds(row['seconds'])} | {milliseconds(model)} "
                    f"| {row['seconds'] / model - 1:+.0%} |").replace(",", " ")
            if shares:
                threads = min(CORES, row["point"])
                computing = min(1.0, row["processor"] / (row["seconds"] * threads))
                line += f" {computing:.0%} | {1 - computing:.0%} |"
            lines.append(line)
        lines.append("")
    return "\n".join(lines)


def join(options):
    results = []
    for path in options.join:
        with open(path) as file:
            results += json.load(file)
    results.sort(key=lambda result: list(CURVES).index(result["curve"]))
    if options.table:
        with open(options.table) as file:
            before, _, rest = file.read().partition(MARKS[0])
        _, _, behind = rest.partition(MARKS[1])
        with open(options.table, "w") as file:
            file.write(f"{before}{MARKS[0]}\n\n{table(results)}\n{MARKS[1]}{behind}")
    if options.picture:
        panels = [(CURVES[result["curve"]].title, CURVES[result["curve"]].unit,
                   [(row["point"], 1e3 * row["seconds"], 1e3 * model) for row, model in
                    zip(result["rows"], fitted(CURVES[result["curve"]], result["rows"]))]) for result in results]
        with open(options.picture, "w") as file:
            file.write(growth_picture.picture(panels))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(runs.ROOT, "build"), help="build directory")
    parser.add_argument("--curves", default=",".join(CURVES), help="of them, by commas [all]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="write what was measured there")
    parser.add_argument("--join", nargs="+", metavar="FILE", help="measure nothing: put these --json together")
    parser.add_argument("--table", metavar="FILE", help="with --join: the page whose table is to be replaced")
    parser.add_argument("--picture", metavar="FILE", help="with --join: where the curves are drawn")
    options = parser.parse_args()
    if options.join:
        join(options)
        return
    unknown = [name for name in options.curves.split(",") if name not in CURVES]
    if unknown:
        sys.exit(f"There is no curve '{unknown[0]}'; choose among {', '.join(CURVES)}.")
    results = []
    for name in options.curves.split(","):
        results.append(measure(options, name))
        runs.save_json(options.json, results)


if __name__ == "__main__":
    main()
