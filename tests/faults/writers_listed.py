#!/usr/bin/python3
"""Fails if a file outside of base/ opens, makes or renames files by itself.

Files are written by base's OutputFile, LineFile and ScratchFile, which are what the fault tests
spoil. What else changes the disk is listed here, with the reason.
"""
import os
import re
import sys

CALLS = re.compile(r"\b(?:ofstream|fstream\s*\w*\(|fopen|freopen|tmpfile|mkstemp|mkostemp|creat|"
                   r"O_WRONLY|O_RDWR|O_CREAT|O_TMPFILE|std::filesystem::copy(?:_file)?|create_directory|rename|renameat2|"
                   r"linkat|ftruncate|fallocate|pwrite|pwritev|sendfile|copy_file_range)\b")
ALLOWED = {
    "backend/strict/strict_region.cpp": "memory that is mapped twice",
    "base/directory.cpp": "replaces directories",
    "base/output_file.cpp": "the one way to write a file",
    "base/line_file.cpp": "adds lines to one",
    "base/scratch_file.cpp": "a file without a name",
    "cli/elastic.cpp": "/dev/null, for what a launcher says",
    "cli/standard_files.cpp": "/dev/null, in place of standard files that are closed",
    "comm/launchers.cpp": "the standard error of a launcher, where it has no other way out",
    "train/checkpoint_directory.cpp": "gives checkpoints, which are directories, their names",
    "train/checkpoint_lock.cpp": "the lock, which is made and removed and never read whole",
}


def uses(path):
    found = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            code = line.split("//")[0]
            code = re.sub(r'"(?:[^"\\]|\\.)*"', '""', code)
            for match in CALLS.finditer(code):
                found.append(f"{path}:{number}: {match.group()}")
    return found


def main():
    source = sys.argv[1]
    wrong, seen = [], set()
    for folder, _, names in os.walk(source):
        for name in names:
            path = os.path.join(folder, name)
            if not name.endswith((".cpp", ".h")):
                continue
            found = uses(path)
            relative = os.path.relpath(path, source)
            if found and relative in ALLOWED:
                seen.add(relative)
            else:
                wrong += found
    for line in wrong:
        print(f"{line}: write through base/output_file.h, or list it in tests/faults with a reason")
    for name in sorted(set(ALLOWED) - seen):
        print(f"{name} is listed but writes nothing")
    return 1 if wrong or set(ALLOWED) - seen else 0


if __name__ == "__main__":
    sys.exit(main())
