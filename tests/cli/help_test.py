#!/usr/bin/python3
"""help_test.py PROGRAM: the help of every command, and of those below it, explains each of its flags."""

import re
import subprocess
import sys


def entries(text):
    """(name, explanation) of each flag and each command of a page of help."""
    found = []
    for line in text.splitlines():
        if re.match(r"^  [a-z-]\S*( \S+)*( {2,}\S.*)?$", line):
            name, _, told = line.strip().partition("  ")
            found.append([name, told.strip()])
        elif found and re.match(r"^ {20,}\S", line):
            found[-1][1] += " " + line.strip()
        elif re.match(r"^(Examples?|Start here):", line):
            break
    return found


def main():
    faults, flags, commands, waiting = [], 0, 0, [[]]
    while waiting:
        command = waiting.pop()
        done = subprocess.run([sys.argv[1], *command, "--help"], capture_output=True, text=True, check=False)
        title = "millrace " + " ".join(command)
        if done.returncode != 0:
            faults.append(f"{title} --help ends with {done.returncode}")
        commands += 1
        below = done.stdout.partition("Subcommands:\n")[2]
        for name, told in entries(done.stdout):
            flags += name.startswith("-")
            if len(told.split()) < 2:
                faults.append(f"{title}: {name} is not explained: '{told}'")
            if re.search(rf"^  {re.escape(name)} ", below, re.MULTILINE) and not name.startswith("-"):
                waiting.append([*command, name])
    print("\n".join(faults) or f"{flags} flags of {commands} commands are explained")
    return 1 if faults or commands < 20 or flags < 300 else 0


if __name__ == "__main__":
    sys.exit(main())
