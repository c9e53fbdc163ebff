#!/usr/bin/python3
"""Holds the timelines that `millrace plan --check --run` simulates against those of the runs.

Every task (forward, backward or update of a micro-batch on a device) is compared by its start and its
end within its step, in parts of the step, by the middle of all steps that begin when the first one has ended:
what runs for the first time takes longer. A step of a drained schedule begins with its first task; steps of
others overlap, each begins with the first task of its own micro-batches, and when the next one begins is
compared too.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile

import millrace_runs as runs
import prediction

BAR = 0.05
TASKS = ("forward", "backward", "update")
NEXT = (0, 0, "next", "the next step", -1)  # as if it were a task

JOBS = [
    ("resnet18", "1 device", []),
    ("resnet18", "2 data-parallel", ["--devices", "2"]),
    ("resnet18", "gpipe, 4", prediction.pipeline("gpipe", 4)),
    ("vgg16", "1f1b-flush, 4", prediction.pipeline("1f1b-flush", 4)),
    ("resnet50", "zero-bubble, 4", prediction.pipeline("zero-bubble", 4)),
    ("resnet18", "interleaved, 4", prediction.pipeline("interleaved", 4)),
    ("vgg16", "1f1b, 1", prediction.pipeline("1f1b", 1)),
]


def tasks_of(events):
    """{(row, kind, name, micro-batch): [(start, end) of each step]} in seconds.

    A device that runs its program whole updates weights between pieces of its backward pass: from the
    first piece to the last is the task. A forward pass of a micro-batch begins its next step.
    """
    every = [event for event in events if event.get("ph") == "X" and event.get("cat") in TASKS]
    every.sort(key=lambda event: event["ts"])
    steps, before, tasks = {}, {}, {}
    for event in every:
        place = (event["pid"], event["tid"])
        micro_batch = event.get("args", {}).get("micro_batch", -1)
        if event["cat"] == "forward" != before.get((place, micro_batch)):
            steps[place, micro_batch] = steps.get((place, micro_batch), -1) + 1
        before[place, micro_batch] = event["cat"]
        step = max(0, steps.get((place, micro_batch), 0))
        spans = tasks.setdefault((*place, event["cat"], event["name"], micro_batch), {})
        begin = event["ts"] / 1e6
        end = begin + event["dur"] / 1e6
        first, last = spans.get(step, (begin, end))
        spans[step] = (min(first, begin), max(last, end))
    return {key: [spans[step] for step in sorted(spans)] for key, spans in tasks.items()}


def by_step(tasks, micro_batches):
    """The same of an undrained schedule, which counts its micro-batches through all steps."""
    result = {}
    for (*place, micro_batch), spans in sorted(tasks.items()):
        result.setdefault((*place, micro_batch % micro_batches), []).extend(spans)
    steps = min(len(spans) for spans in result.values())
    begins = begins_of(result, steps)
    result[NEXT] = [(begin, begin) for begin in begins[1:]]
    return result


def begins_of(tasks, steps):
    return [min(spans[step][0] for spans in tasks.values()) for step in range(steps)]


def steps_to_warm_up(tasks):
    """How many steps begin before the first one has ended."""
    steps = min(len(spans) for spans in tasks.values())
    end = max(spans[0][1] for key, spans in tasks.items() if key != NEXT)
    return min(steps - 1, sum(begin < end for begin in begins_of(tasks, steps)))


def within_step(tasks, first):
    """The middle start and end of each task in the steps from `first` on, from their beginnings on."""
    steps = min(len(spans) for spans in tasks.values())
    begins = begins_of(tasks, steps)
    return {key: tuple(statistics.median(spans[step][end] - begins[step]
                                         for step in range(first, steps)) for end in (0, 1))
            for key, spans in tasks.items()}


def compare(predicted_events, measured_events, step_seconds, micro_batches=1):
    """Differences of starts and ends as shares of the step, which has so many micro-batches."""
    predicted, measured = tasks_of(predicted_events), tasks_of(measured_events)
    if not predicted or set(predicted) != set(measured):
        raise ValueError("the two timelines are not of the same tasks")
    if max(len(spans) for spans in measured.values()) == 1:
        predicted, measured = by_step(predicted, micro_batches), by_step(measured, micro_batches)
    first = max(steps_to_warm_up(predicted), steps_to_warm_up(measured))
    ours, theirs = within_step(predicted, first), within_step(measured, first)
    signed = {(key, end): (ours[key][end] - theirs[key][end]) / step_seconds
              for key in ours for end in (0, 1)}
    differences = [abs(one) for one in signed.values()]
    (furthest, end), by = max(signed.items(), key=lambda item: abs(item[1]))
    return {"tasks": len(ours), "furthest": f"{('start', 'end')[end]} of {furthest[3]}"
            f"{'' if furthest[4] < 0 else f' {furthest[4]}'} on {furthest[0]}.{furthest[1]}: {100 * by:+.1f} %",
            "median": statistics.median(differences),
            "worst": max(differences),
            "within": sum(one <= BAR for one in differences) / len(differences)}


def events_of(path):
    with open(path) as file:
        return json.load(file)["traceEvents"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    runs.add_common_flags(parser)
    parser.set_defaults(image=96, classes=100)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    runs.add_part_flags(parser)
    options = parser.parse_args()
    jobs = [] if options.join else runs.chosen_part(options, JOBS)
    rows = runs.joined_rows(options)
    print(f"{'model':<12}{'job':<20}{'tasks':>7}{'median':>9}{'worst':>9}{'within 5 %':>12}")
    with tempfile.TemporaryDirectory() as directory:
        for number, (model, name, shape) in enumerate(jobs):
            run = os.path.join(directory, str(number))
            report = prediction.parse_report(runs.run_millrace(
                options, "plan", "--check", "--json", "--model", model, "--image", options.image,
                "--classes", options.classes, "--batch", options.batch, "--steps", options.steps,
                "--rounds", options.rounds, "--lr", "0.0001", "--run", run, *shape))
            row = compare(events_of(os.path.join(run, "predicted_trace.json")),
                          events_of(os.path.join(run, "trace.json")),
                          report["measured_step_seconds"],
                          int(shape[-1]) if "--microbatches" in shape else 1)
            rows.append({"model": model, "job": name, **row})
            print(f"{model:<12}{name:<20}{row['tasks']:>7}{100 * row['median']:>7.1f} %"
                  f"{100 * row['worst']:>7.1f} %{100 * row['within']:>10.0f} %  {row['furthest']}", flush=True)
    met = all(row["worst"] <= BAR for row in rows)
    print(f"worst {100 * max(row['worst'] for row in rows):.1f} % of the step "
          f"(bar {100 * BAR:.0f} %): {runs.verdict(met)}")
    runs.save_json(options.json, {"rows": rows, "met": met})
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
