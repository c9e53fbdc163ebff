#!/usr/bin/python3
"""promises_test.py ROOT BUILD: what docs/testing.md names as showing a promise is there: tests of CTest or of
GoogleTest, tools, targets of make. A name that ends in … begins several."""

import pathlib
import re
import subprocess
import sys


def table(root):
    """(names of all rows, how many rows)."""
    text = (root / "docs" / "testing.md").read_text(encoding="utf-8")
    section = text.split("## What the pages promise\n", 1)[1].split("\n## ", 1)[0]
    rows = [row.split("|")[3] for row in section.splitlines() if row.startswith("|")][2:]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)], rows


def known_tests(root, build):
    listed = subprocess.run(["ctest", "--test-dir", build, "-C", "slow", "-N"],
                            capture_output=True, text=True, check=True).stdout
    names = set(re.findall(r"Test +#\d+: (\S+)", listed))
    for source in (root / "tests").rglob("*.cpp"):
        for suite, name in re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", source.read_text(encoding="utf-8"), re.M):
            names |= {suite, name}
    return names


def main():
    root, build = pathlib.Path(sys.argv[1]), sys.argv[2]
    tests = known_tests(root, build)
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(encoding="utf-8"), re.M))

    def known(name):
        if name.startswith("make "):
            return name.removeprefix("make ") in targets
        if "/" in name:
            return (root / name).exists()
        if name.endswith("…"):
            return any(test.startswith(name[:-1]) for test in tests)
        return name in tests

    names, rows = table(root)
    faults = [f"docs/testing.md: there is no '{name}'" for name in names if not known(name)]
    faults += [f"docs/testing.md: nothing shows '{row.strip()}'" for row in rows if "`" not in row]
    print("\n".join(faults) or f"{len(names)} names of {len(rows)} promises are there")
    return 1 if faults or len(rows) < 30 else 0


if __name__ == "__main__":
    sys.exit(main())
