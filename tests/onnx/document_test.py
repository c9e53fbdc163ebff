#!/usr/bin/python3
"""Runs every command of docs/onnx.md on small networks and data: document_test.py DOCUMENT PROGRAM."""
import glob
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from readme_test import commands_of

# What the commands read. Images are 32 pixels wide, but for faces.
MADE = [
    "data synth folder:pets --count 74 --classes 37 --width 36 --height 36",
    "data synth folder:val --count 1000 --classes 1000 --width 36 --height 36",
    "data synth recordio:faces.rec --faces --identities 4 --images 4 --size 112",
    "train --model resnet18 --image 32 --data folder:pets --valid-share 0.5 --epochs 1 --batch 8 --checkpoint runs/pets",
    "train --model mobilefacenet --data recordio:faces.rec --head arcface --steps 1 --batch 4 --checkpoint runs/faces",
    "train --model resnet50 --image 32 --steps 1 --batch 2 --save-weights resnet50.pth",
    "train --model mobilefacenet --steps 1 --batch 2 --save-weights faces.safetensors",
    "export faces.safetensors backbone.onnx --model mobilefacenet",
    "export runs/pets folded.onnx --fold",
]
# Behind a command that ends in an ellipsis, and in place of words that would take long.
MORE = ["--batch", "4", "--steps", "2", "--quiet"]
SMALLER = {"512": "64"}
FEWEST = 8


def run(program, words):
    done = subprocess.run([program, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    if done.returncode != 0:
        sys.exit(f"`millrace {' '.join(words)}` ended with {done.returncode}:\n{done.stdout}")


def main():
    document, program = map(os.path.abspath, sys.argv[1:3])
    with open(document) as file:
        commands = [words[1:] for words in commands_of(file.read()) if words[0] == "millrace"]
    if len(commands) < FEWEST:
        sys.exit(f"Only {len(commands)} commands were found in {document}.")
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        for line in MADE:
            words = line.split()
            run(program, words + (["--quiet"] if words[0] == "train" else []))
        os.makedirs("photos")
        for i, picture in enumerate(sorted(glob.glob("val/**/*.jpg", recursive=True))[:3]):
            shutil.copy(picture, f"photos/{i}.jpg")
        for words in commands:
            words = [SMALLER.get(word, word) for word in words]
            if words[-1] == "…":
                words[-1:] = MORE
            words = [file for word in words for file in (sorted(glob.glob(word)) if "*" in word else [word])]
            run(program, words)
            print("ran:", " ".join(words))


if __name__ == "__main__":
    main()
