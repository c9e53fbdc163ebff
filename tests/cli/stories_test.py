#!/usr/bin/python3
"""Runs the story that a page tells, command by command, and compares what is printed with what the page shows.

usage: stories_test.py PAGE PROGRAM

The commands are the lines of indented blocks that begin with "$ "; what they printed follows them, up to
the next one or an empty line. They run in one empty directory, in order. Lines are compared as sets:
numbers may be others (percentages within MOST_APART), and so may be the classes that lines name; a page may
leave out lines where it has "...". Lines of progress are passed over.
"""
import os
import re
import subprocess
import sys
import tempfile

MOST_APART = 25  # points of a percentage: other processors round otherwise, and training goes another way
LONGEST = 600  # seconds
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
PERCENTAGE = re.compile(r"(\d+(?:\.\d+)?) %")


def steps_of(text):
    """(command, lines that it printed) of each command of the page."""
    steps, printed = [], None
    for line in text.split("\n"):
        inside = line.startswith("    ")
        if inside and line.startswith("    $ "):
            printed = []
            steps.append([line[6:], printed])
        elif inside and steps and printed is not None:
            if not printed and steps[-1][0].endswith("\\"):
                steps[-1][0] = steps[-1][0][:-1] + line.strip()
            else:
                printed.append(line[4:])
        else:
            printed = None
    return steps


def is_progress(line):
    return bool(re.match(r"epoch \d+ +step \d+/", line))


def shape_of(line, classes):
    """The line without what another processor may make otherwise."""
    for name in sorted(classes, key=len, reverse=True):
        line = re.sub(rf"\b{re.escape(name)}\b(?!\.|/)", "@", line)
    line = NUMBER.sub("0", line.replace(" (best so far)", ""))
    return re.sub(r"\b0 thread\b", "0 threads", line).strip()


def classes_here():
    """The names of directories that have pictures."""
    return {os.path.basename(where) for where, _, names in os.walk(".")
            if any(name.endswith((".jpg", ".png")) for name in names)}


def shapes(lines, classes):
    found = {}
    for line in lines:
        if line.strip() and not is_progress(line):
            found.setdefault(shape_of(line, classes), []).append(line)
    return found


def faults_of(shown, printed, classes):
    whole = "..." not in shown
    page, program = (shapes([line for line in lines if line != "..."], classes) for lines in (shown, printed))
    faults = [f"the page shows what is not printed: {page[shape][0]}" for shape in page if shape not in program]
    if whole:
        faults += [f"the page lacks what is printed: {program[shape][0]}" for shape in program if shape not in page]
    for shape in page.keys() & program.keys():
        if len(page[shape]) > 1 or len(program[shape]) > 1:
            continue
        told, here = (list(map(float, PERCENTAGE.findall(lines[shape][0]))) for lines in (page, program))
        if any(abs(a - b) > MOST_APART for a, b in zip(told, here)):
            faults.append(f"the page shows other figures: {page[shape][0]} instead of {program[shape][0]}")
    return faults


def main():
    page, program = map(os.path.abspath, sys.argv[1:3])
    with open(page) as file:
        steps = steps_of(file.read())
    if len(steps) < 5:
        sys.exit(f"{page} has only {len(steps)} commands.")
    faults = []
    with tempfile.TemporaryDirectory() as home:
        os.chdir(home)
        environment = {**os.environ, "PATH": os.path.dirname(program) + ":" + os.environ["PATH"],
                       "XDG_CACHE_HOME": os.path.join(home, "cache"), "LC_ALL": "C"}
        for command, shown in steps:
            done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, env=environment, timeout=LONGEST, check=False)
            if done.returncode != 0:
                faults.append(f"$ {command}\n  ended with {done.returncode}: {done.stdout}")
                break
            for fault in faults_of(shown, done.stdout.split("\n"), classes_here()):
                faults.append(f"$ {command}\n  {fault}")
        os.chdir("/")
    for fault in faults:
        print(fault)
    print(f"{len(steps)} commands of {os.path.basename(page)}, {len(faults)} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
