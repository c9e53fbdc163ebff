"""What the benchmark scripts share: running `millrace train` and reading its metrics."""
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def add_common_flags(parser):
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="build directory")
    parser.add_argument("--directory", default=os.path.join(ROOT, "run", "bench"),
                        help="where data sets and checkpoints go")
    parser.add_argument("--threads", type=int, default=0, help="0 takes every core")
    parser.add_argument("--image", type=int, help="pixels [the model's usual size]")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--json", metavar="FILE", help="write the results there too")


REFUSED = 2


def run_millrace(options, *arguments, may_refuse=False):
    """Runs the program to its end; a failure ends the script with the program's own words.

    Where it may refuse, None stands for a refusal.
    """
    program = os.path.join(options.build, "millrace")
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if may_refuse and done.returncode == REFUSED:
        return None
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(map(str, arguments))}\nfailed: {done.stderr.strip()}")
    return done.stdout


def train(options, metrics, *arguments):
    """One training run; returns the lines of its metrics file as dictionaries."""
    image = ["--image", options.image] if options.image else []
    run_millrace(options, "train", "--model", options.model, "--batch", options.batch, "--steps",
                 options.steps, "--classes", options.classes, "--threads-per-device",
                 options.threads, "--quiet", "--metrics", metrics, *image, *arguments)
    with open(metrics) as file:
        lines = [json.loads(line) for line in file]
    steps = [line["step"] for line in lines if line["kind"] == "step"]
    if steps != list(range(1, options.steps + 1)):
        sys.exit(f"{metrics} does not hold {options.steps} steps.")
    return lines


def steps_after_first(lines):
    """The first step warms up and is never counted."""
    return [line for line in lines if line["kind"] == "step"][1:]


def add_part_flags(parser):
    """For scripts whose jobs take longer than one wants to keep a machine quiet."""
    parser.add_argument("--only", metavar="A-B", help="only these of the jobs, counted from 1")
    parser.add_argument("--join", nargs="+", metavar="FILE",
                        help="run nothing: judge the rows of these --json together")


def chosen_part(options, jobs):
    if not options.only:
        return jobs
    first, _, last = options.only.partition("-")
    return jobs[int(first) - 1:int(last or first)]


def joined_rows(options):
    """The rows of the files of --join, in order; none without it."""
    rows = []
    for path in options.join or []:
        with open(path) as file:
            rows += json.load(file)["rows"]
    return rows


def save_json(path, result):
    if not path:
        return
    with open(path, "w") as file:
        json.dump(result, file, indent=2)
        file.write("\n")


def verdict(met):
    return "met" if met else "MISSED"
