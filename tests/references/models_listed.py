#!/usr/bin/python3
"""models_listed.py PROGRAM: every model of the program has its gradients compared by a test (CMakeLists.txt)."""

import os
import re
import subprocess
import sys


def main():
    told = subprocess.run([sys.argv[1], "train", "--help"], capture_output=True, text=True, check=True).stdout
    models = re.findall(r"\w+", re.search(r"The network: (.*?); or onnx", told, re.DOTALL)[1])
    place = os.path.join(os.path.dirname(os.path.abspath(__file__)), "CMakeLists.txt")
    with open(place, encoding="utf-8") as file:
        text = file.read()
    rows = set(re.findall(r"^millrace_gradients\((\w+) ", text, re.MULTILINE))
    for names in re.findall(r"^foreach\(model ([^)]*)\)\n  millrace_gradients\(\$\{model\}", text, re.MULTILINE):
        rows |= set(names.split())
    missing = sorted(set(models) - rows)
    print("no gradients are compared of " + ", ".join(missing) if missing else f"all {len(models)} models have a row")
    return 1 if missing or len(models) < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
