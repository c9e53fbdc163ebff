#!/usr/bin/env python3
"""symbols_check.py LIBRARY PLUGIN...: fails if the static library defines a strong symbol that is in no namespace of
Millrace, where it would meet those of programs, or a plug-in shows more than its entry."""
import re
import subprocess
import sys


def symbols(file, *flags):
    lines = subprocess.run(["nm", "-C", "--defined-only", "--extern-only", *flags, file], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    return [line.split(" ", 2)[1:] for line in lines if re.match(r"[0-9a-f]+ [A-Za-z] ", line)]


def is_own(name):
    name = re.sub(r"^(guard variable|vtable|typeinfo|typeinfo name|VTT|non-virtual thunk to|TLS \w+ function) (for |to )?",
                  "", name)
    return re.match(r"[^(]*\bmillrace::", name) is not None


def main():
    library, *plugins = sys.argv[1:]
    strong = [name for kind, name in symbols(library) if kind not in "VvWwu"]
    if sum(map(is_own, strong)) < 100:
        sys.exit("The library's own symbols are not there.")
    stray = [name for name in strong if not is_own(name)]
    for plugin in plugins:
        shown = [name for kind, name in symbols(plugin, "-D") if kind not in "VvWwu" and not name.startswith("millrace")]
        stray += [f"{plugin}: {name}" for name in shown]
    for name in stray[:20]:
        print("not meant to be public:", name)
    return 1 if stray else 0


if __name__ == "__main__":
    sys.exit(main())
