#!/usr/bin/python3
"""flags_drawn.py PROGRAM: every flag of `train` is said by some draw, or stands here with the reason why not."""

import inspect
import re
import subprocess
import sys

import job
import judge
import references

ELSEWHERE = {
    "--help --print-config --config": "say no job, or others' flags: tests/cli/config_test.cpp",
    "--epochs --lr-warmup": "other words for a length in steps: tests/references/learning_rates.py",
    "--mean --std --label-offset --on-bad-record": "of data, not of steps: tests/references/images.py, tests/data",
    "--metric --patience": "choose among checkpoints, and when to end: tests/train/metric_test.cpp",
    "--new-layers --fine-tune --save-weights": "of weights: tests/train/weights_test.cpp, tests/cli/tuning_options_test.py",
    "--hosts --restarts --elastic": "start jobs again: tools/restart-test, tools/elastic-test",
    "--device-memory": "refuses: tests/train/trainer_test.cpp",
    "--dump-passes --tensorboard": "write files: tests/passes/pipeline_test.cpp, tests/train/event_writer_test.cpp",
}


def main():
    text = subprocess.run([sys.argv[1], "train", "--help"], capture_output=True, text=True, check=True).stdout
    flags = set(re.findall(r"^  (?:-h,)?(--[a-z0-9-]+)", text, re.MULTILINE))
    flags |= set(re.findall(r"^  --[a-z0-9-]+,(--[a-z0-9-]+)", text, re.MULTILINE))
    drawn = "".join(map(inspect.getsource, (job, judge, references)))
    said = {flag for flag in flags if f'"{flag}"' in drawn}
    excused = {flag for names in ELSEWHERE for flag in names.split()}
    faults = [f"{flag} is drawn by nobody: give it a word in axes.py" for flag in sorted(flags - said - excused)]
    faults += [f"{flag} is no flag of train any more" for flag in sorted(excused - flags)]
    faults += [f"{flag} is drawn, and need not be excused" for flag in sorted(excused & said)]
    print("\n".join(faults) or f"{len(said)} of {len(flags)} flags are drawn, the others are tested elsewhere")
    return 1 if faults or len(said) < 50 else 0


if __name__ == "__main__":
    sys.exit(main())
