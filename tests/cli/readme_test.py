#!/usr/bin/python3
"""Runs every command of the README on small data, follows its links, and measures its first screen.

usage: readme_test.py README BUILD_DIRECTORY

Jobs are made small by other values for the flags in SMALLER; everything else runs as it is written.
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile

SCREEN = 40  # lines
SMALLER = {"--epochs": ["--epochs", "1"], "--steps": ["--steps", "2"], "--batch": ["--batch", "8"],
           "--hosts": ["--hosts", "localhost:2"]}
IMAGE = ["--image", "32"]
DATA = [
    "synth folder:photos/train --count 8 --classes 4 --width 48 --height 40 --channels 3",
    "synth folder:photos/test --count 4 --classes 4 --width 48 --height 40 --channels 3 --seed 2",
    "synth recordio:faces.rec --faces --identities 4 --images 4 --size 32",
    "synth idx:grey --count 12800 --classes 10 --width 28 --height 28 --channels 1",
    "synth idx:grey --split test --count 128 --classes 10 --width 28 --height 28 --channels 1",
]
LONGEST = 120  # seconds


def fail(sentence):
    sys.exit(f"README.md: {sentence}")


def commands_of(text):
    """The lines of indented blocks, continued ones joined, without comments."""
    lines = [line[4:] for line in text.split("\n") if line.startswith("    ")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [shlex.split(line, comments=True) for line in joined.split("\n") if line.strip()]


def smaller(words):
    result = []
    skip = False
    for word in words:
        if not skip:
            result += SMALLER.get(word, [word])
        skip = word in SMALLER
    if words[1] == "train":
        result += IMAGE
    if words[1] == "demo":
        result += ["--data", "idx:grey", "--epochs", "1"]
    return result


def run(words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=LONGEST)
    if done.returncode != 0:
        fail(f"`{' '.join(words)}` ended with {done.returncode}:\n{done.stdout}")


def check_make_targets(commands, root):
    targets = sorted({words[i + 1] for words in commands for i, word in enumerate(words[:-1])
                      if word == "make"})
    if "demo" not in targets:
        fail("`make demo` is missing.")
    for target in targets:
        run(["make", "--directory", root, "--dry-run", target])


def check_links(text, root):
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in link and not os.path.exists(os.path.join(root, link)):
            fail(f"there is no {link}.")


def check_first_screen(text):
    before = text.split("![")[0]
    if before == text:
        fail("there is no picture.")
    if before.count("\n") > SCREEN:
        fail(f"the first picture comes after {before.count(chr(10))} lines; {SCREEN} are a screen.")


def main():
    readme, build = map(os.path.abspath, sys.argv[1:3])
    root = os.path.dirname(readme)
    with open(readme) as file:
        text = file.read()
    check_first_screen(text)
    check_links(text, root)
    commands = commands_of(text)
    check_make_targets(commands, root)
    programs = [[words[i:] for i, word in enumerate(words) if word.endswith("millrace")][0]
                for words in commands if any(word.endswith("millrace") for word in words)]
    programs = [words for words in programs if len(words) > 1]
    if len(programs) < 5:
        fail(f"only {len(programs)} commands of the program were found.")
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        os.makedirs("photos")
        os.environ["XDG_CACHE_HOME"] = os.path.join(directory, "cache")
        for data in DATA:
            run([os.path.join(build, "millrace"), "data", *data.split()])
        for words in programs:
            run([os.path.join(build, "millrace"), *smaller(words)[1:]])
            print("ran:", " ".join(words[1:]))


if __name__ == "__main__":
    main()
