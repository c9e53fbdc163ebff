#!/usr/bin/python3
"""Fails if a file of src/ reads files without a fuzz target for what it reads.

usage: readers_listed.py SOURCE FUZZ
"""
import os
import re
import sys

READS = re.compile(r"\b(?:MappedFile|read_text|ifstream|fopen|gzopen|LoadFile)\b")
SYSTEM = "of the system, not of others"
READERS = {  # the fuzz targets of each, or why there are none
    "api/report.cpp": "the page that it has just written",
    "base/file.cpp": "what the others read with",
    "base/file.h": "what the others read with",
    "base/memory.cpp": SYSTEM,
    "cli/bench_published.cpp": ["constants"],
    "cli/arguments.cpp": SYSTEM,
    "cli/config.cpp": ["config"],
    "cli/plan_check.cpp": ["job_profile"],
    "cli/plan_cluster.cpp": ["constants"],
    "cli/plan_flags.cpp": ["plan"],
    "cli/plan_profile.cpp": ["constants"],
    "comm/rank_witness.cpp": SYSTEM,
    "data/formats/face_pairs.h": ["face_pairs"],
    "data/formats/files.cpp": ["jpeg", "png"],
    "data/formats/idx.cpp": ["idx"],
    "data/formats/ofrecord.cpp": ["ofrecord"],
    "data/formats/recordio.cpp": ["recordio"],
    "data/safetensors.h": ["safetensors"],
    "data/weights/weights_file.h": ["safetensors", "torch"],
    "kernels/convolution_choices.cpp": ["choices"],
    "kernels/processor.cpp": SYSTEM,
    "models/onnx/model.h": ["onnx"],
    "models/onnx/parse.cpp": ["onnx"],
    "planner/cluster/cluster.cpp": ["cluster", "topology"],
    "planner/profile.cpp": ["profile"],
    "profile/job_profile.cpp": ["job_profile"],
    "profile/machine.cpp": ["cluster"],
    "profile/prediction_here.cpp": SYSTEM,
    "report/run_files.cpp": ["run_files", "trace"],
    "train/checkpoint.cpp": ["manifest"],
    "train/class_weights.cpp": "numbers of the user's own, one a line",
    "train/job_agreement.cpp": SYSTEM,
    "train/metrics.cpp": ["run_files"],
}


def reads(path):
    with open(path, encoding="utf-8") as file:
        return any(READS.search(line.split("//")[0]) for line in file)


def main():
    source, fuzz = sys.argv[1:]
    found = {os.path.relpath(os.path.join(folder, name), source)
             for folder, _, names in os.walk(source) for name in names
             if name.endswith((".cpp", ".h")) and reads(os.path.join(folder, name))}
    wrong = [f"{name} reads files; name its fuzz target in readers_listed.py"
             for name in sorted(found - set(READERS))]
    wrong += [f"{name} is listed but reads nothing" for name in sorted(set(READERS) - found)]
    with open(os.path.join(os.path.dirname(fuzz), "tools", "fuzz"), encoding="utf-8") as file:
        run = file.read()
    for name, targets in READERS.items():
        for target in targets if isinstance(targets, list) else []:
            if not os.path.exists(os.path.join(fuzz, f"fuzz_{target}.cpp")):
                wrong.append(f"{name}: there is no fuzz/fuzz_{target}.cpp")
            if not re.search(rf"\b{target}\b", run):
                wrong.append(f"tools/fuzz does not run {target}")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
