#!/usr/bin/python3
"""Plans drawn by a seed for clusters that do not come with Millrace: what must hold for any of them.

Flags of `plan` are drawn for a drawn cluster. Each answer is status 0 with finite numbers of which the
prediction lies within its own interval, or status 2 with one sentence. A plan that was written is the same plan
when it is read. More of anything is never worse: bandwidth, arithmetic, memory traffic, memory, and, where the
planner searches, devices and the freedom to choose.

usage: drawn_plans.py MILLRACE [--draws 40] [--first 0] [--seed 1] [--jobs 2] [--only N]
"""
import argparse
import concurrent.futures
import copy
import json
import math
import os
import random
import subprocess
import sys
import tempfile

# Rates that differ by less are the same: simulated steps are a sample of a rhythm, and the search simulates
# the most promising plans alone.
GIVEN_ROOM, SEARCHED_ROOM = 0.01, 0.02
MOST_SECONDS = 600  # of one answer, on a machine with other things to do

DEVICES = {
    "A100": (80e9, 19.5e12, 312e12, 312e12, 2039e9),
    "T4": (15.8e9, 8.1e12, 65e12, 0, 320e9),
    "RTX 3090": (24e9, 35.6e12, 71e12, 71e12, 936e9),
    "server": (96e9, 1.5e12, 0, 0, 100e9),
    "board": (4e9, 25e9, 0, 0, 4e9),
}
LINKS = {"NV4": 25e9, "PIX": 12e9, "SYS": 9e9}
NETWORKS = {"200 Gb/s": (25e9, 3e-6), "10 Gb/s": (1.25e9, 2e-5), "1 Gb/s": (1.25e8, 5e-5),
            "internet": (12.5e6, 2e-2)}
MODELS = ["resnet18", "resnet50", "alexnet", "vgg16", "mobilenet_v2", "squeezenet1_1", "mobilefacenet",
          "iresnet18", "efficientnet_b0"]


def cluster(chance):
    name = chance.choice(list(DEVICES))
    memory, fp32, fp16, bf16, bandwidth = DEVICES[name]
    hosted = name in ("server", "board")
    each = 1 if hosted else chance.choice([1, 2, 4, 8])
    machines = chance.choice([2, 3, 8]) if each == 1 else chance.choice([1, 1, 2, 4])
    described = {
        "name": "drawn", "machines": machines, "devices_per_machine": each,
        "host_cores": chance.choice([4, 32]),
        "device": {"name": name, "memory_bytes": memory, "fp32_operations": fp32,
                   "fp16_operations": fp16, "bf16_operations": bf16, "memory_bandwidth": bandwidth}}
    if each > 1:
        link = chance.choice(list(LINKS))
        described["links"] = {"NV" if link.startswith("NV") else link:
                              {"bandwidth": LINKS[link], "latency": 5e-6}}
        described["topology"] = [" ".join("X" if row == column else link for column in range(each))
                                 for row in range(each)]
    if machines > 1:
        rate, latency = NETWORKS[chance.choice(list(NETWORKS))]
        described["network"] = {"bandwidth": rate, "latency": latency}
    if hosted:
        described["host_memory_bytes"] = memory
        described["devices_in_host_memory"] = True
    return described


def maybe(chance, share, *words):
    return list(words) if chance.random() < share else []


def flags(chance, described):
    """What `plan` is asked, some of it wrong."""
    devices = described["machines"] * described["devices_per_machine"]
    each = described["devices_per_machine"]
    words = ["--model", chance.choice(MODELS), "--batch", str(chance.choice([1, 2, 8, 32, 256]))]
    searches = chance.random() < 0.6
    stages = 1
    if searches:
        words += ["--auto"]
        words += maybe(chance, 0.2, "--devices", str(chance.randint(1, devices)))
        words += maybe(chance, 0.2, "--allow-stale")
        words += maybe(chance, 0.2, "--global-batch", str(chance.choice([7, 16, 64, 1024])))
    elif chance.random() < 0.5 and devices > 1:
        stages = chance.choice([2, 2, 3, 4])
        places = [f"{number // each}:{number % each}" for number in range(devices)]
        words += ["--placement", ".".join(places[stage * devices // stages] if chance.random() < 0.5
                                          else places[min(stage, devices - 1)]
                                          for stage in range(stages))]
    else:
        words += maybe(chance, 0.5, "--devices", str(chance.randint(1, devices + 1)))
    words += maybe(chance, 0.3, "--schedule", chance.choice(
        ["gpipe", "1f1b-flush", "zero-bubble", "interleaved", "1f1b", "ssp", "2bw"]))
    words += maybe(chance, 0.3, "--microbatches", str(chance.choice([1, 2, 3, 4, 8])))
    words += maybe(chance, 0.2, "--parallel", chance.choice(["data", "model", "hybrid"]))
    words += maybe(chance, 0.1, "--replicas", chance.choice(["split", "roundrobin"]))
    words += maybe(chance, 0.15, "--share-optimizer")
    words += maybe(chance, 0.1, "--sync-bn")
    words += maybe(chance, 0.3, "--precision", chance.choice(["fp16", "bf16"]))
    words += maybe(chance, 0.1, "--comm-dtype", chance.choice(["fp16", "bf16"]))
    words += maybe(chance, 0.2, "--recompute", chance.choice(["all", "none", "auto"]))
    words += maybe(chance, 0.15, "--optimizer", chance.choice(["adamw", "lars"]))
    if chance.random() < 0.2:
        words += ["--head", chance.choice(["arcface", "cosface"]), "--classes",
                  str(chance.choice([1000, 1000000]))]
        words += maybe(chance, 0.5, "--head-parallel", chance.choice(["dp", "mp", "pfc"]))
        words += maybe(chance, 0.3, "--sample-rate", "0.1")
    words += maybe(chance, 0.3, "--as", chance.choice(["oneflow", "pipedream", "insightface", "pytorch"]))
    words += maybe(chance, 0.1, "--device-memory", chance.choice(["64MiB", "2GiB"]))
    words += maybe(chance, 0.1, "--price", "1.5")
    words += maybe(chance, 0.1, "--explain")
    words += maybe(chance, 0.05, "--stage-weights", ":".join(["1"] * stages))
    words += maybe(chance, 0.1, "--sweep", chance.choice(
        ["devices=1..4", "batch=1..8", "bandwidth=1e8,1e10", "devices=0", "batch=8..4", "nothing=1"]))
    return words


def faster(described, field, times):
    changed = copy.deepcopy(described)
    if field == "links":
        for link in list(changed.get("links", {}).values()) + [changed.get("network", {})]:
            if link:
                link["bandwidth"] *= times
    elif field == "arithmetic":
        for name in ("fp32_operations", "fp16_operations", "bf16_operations"):
            changed["device"][name] *= times
    elif field == "machines":
        changed["machines"] *= times
        changed.setdefault("network", {"bandwidth": 1.25e9, "latency": 2e-5})
    else:
        changed["device"][field] *= times
        if field == "memory_bytes" and "host_memory_bytes" in changed:
            changed["host_memory_bytes"] *= times
    return changed


class Draw:
    def __init__(self, program, number, seed):
        self.program = program
        self.chance = random.Random(f"{seed} {number}")
        self.cluster = cluster(self.chance)
        self.words = flags(self.chance, self.cluster)
        self.wrong = []
        self.command = ""

    def plan(self, directory, described, words):
        """The answer, or None with what is wrong with how it was refused told."""
        path = os.path.join(directory, "cluster.json")
        with open(path, "w") as file:
            json.dump(described, file)
        command = [self.program, "plan", "--json", "--cluster", path, *words]
        self.command = " ".join(command[:4] + [json.dumps(described)] + words)
        done = subprocess.run(command, capture_output=True, text=True, timeout=MOST_SECONDS)
        if done.returncode == 0:
            return json.loads(done.stdout)
        text = done.stderr.strip()
        if done.returncode != 2 or done.stdout or not text or "\n" in text \
                or not text.startswith("millrace: ") or text.count(": ") > 6:
            self.wrong.append(f"status {done.returncode}: {text[:400]}")
        return None

    def check_numbers(self, value, place=""):
        if isinstance(value, dict):
            for name, one in value.items():
                self.check_numbers(one, f"{place}.{name}")
        elif isinstance(value, list):
            for one in value:
                self.check_numbers(one, place)
        elif isinstance(value, float) and not math.isfinite(value):
            self.wrong.append(f"{place} is {value}")

    def check_answer(self, answer):
        self.check_numbers(answer)
        rate = answer.get("predicted_samples_per_second")
        if rate is None:
            return
        if not rate > 0:
            self.wrong.append(f"{rate} samples/s")
        low, high = answer["interval"]["samples_per_second"]
        if not low <= rate <= high:
            self.wrong.append(f"{rate} samples/s is outside of {low} to {high}")
        if answer["fits"] == ("reason" in answer):
            self.wrong.append("fits and a reason do not go together")
        shown = max(device["peak_bytes"] for device in answer["devices"])
        if answer["fits"] and shown > answer["device_memory_bytes"]:
            self.wrong.append("fits, but needs more than a device has")

    @staticmethod
    def rate_of(answer):
        """Samples per second of what fits; nothing that fits is the slowest."""
        if answer is None or not answer.get("fits") or "predicted_samples_per_second" not in answer:
            return 0
        return answer["predicted_samples_per_second"]

    def check_more(self, directory, answer, searches):
        """One thing more is not worse."""
        what = self.chance.choice(["links", "arithmetic", "memory_bandwidth", "memory_bytes"]
                                  + (["machines"] if searches else []))
        if what == "machines" and ("--devices" in self.words or "--global-batch" in self.words):
            what = "links"
        more = self.plan(directory, faster(self.cluster, what, 2), self.words)
        room = SEARCHED_ROOM if searches else GIVEN_ROOM
        if self.rate_of(more) < self.rate_of(answer) * (1 - room):
            self.wrong.append(f"twice the {what}: {self.rate_of(answer):.4g} samples/s become "
                              f"{self.rate_of(more):.4g}")

    def check_written(self, directory, answer):
        """The plan of a search, read again, predicts the same."""
        path = os.path.join(directory, "plan.json")
        with open(path, "w") as file:
            json.dump(answer["plan"], file)
        keep = {"--model": 1, "--as": 1, "--optimizer": 1, "--head": 1, "--classes": 1,
                "--device-memory": 1}
        words, i = [], 0
        while i < len(self.words):
            if self.words[i] in keep:
                words += self.words[i:i + 2]
            i += 1
        again = self.plan(directory, self.cluster, [*words, "--plan", path])
        if again is None:
            self.wrong.append("its own plan is refused")
        elif abs(self.rate_of(again) / self.rate_of(answer) - 1) > 1e-6:
            self.wrong.append(f"read again, its plan has {self.rate_of(again):.6g} samples/s instead of "
                              f"{self.rate_of(answer):.6g}")

    def run(self):
        searches = "--auto" in self.words
        with tempfile.TemporaryDirectory() as directory:
            answer = self.plan(directory, self.cluster, self.words)
            command = self.command
            if answer is not None:
                self.check_answer(answer)
                if "--sweep" not in self.words:
                    self.check_more(directory, answer, searches)
                    if searches and self.rate_of(answer) > 0:
                        self.check_written(directory, answer)
        self.command = command
        return answer is not None


def run_one(arguments):
    draw = Draw(*arguments)
    try:
        return draw.run(), draw.wrong, draw.command
    except (subprocess.TimeoutExpired, ValueError, KeyError) as error:
        return False, draw.wrong + [f"{type(error).__name__}: {str(error)[:200]}"], draw.command


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="the number of the first draw")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", type=int, help="the number of one draw")
    options = parser.parse_args()
    numbers = range(options.first, options.first + options.draws) if options.only is None else [options.only]
    answered = wrong = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        jobs = [(os.path.abspath(options.program), number, options.seed) for number in numbers]
        for number, (fine, faults, command) in zip(numbers, pool.map(run_one, jobs)):
            answered += fine
            wrong += bool(faults)
            for fault in faults:
                print(f"draw {number}: {fault}", flush=True)
            if faults:
                print(f"  {command}", flush=True)
    print(f"{len(numbers)} draws: {answered} answered, {len(numbers) - answered} refused, {wrong} wrong")
    if answered < len(numbers) / 3:
        print("too few were answered")
    sys.exit(0 if wrong == 0 and answered >= len(numbers) / 3 else 1)


if __name__ == "__main__":
    main()
