"""trace_test.py MILLRACE: what `--trace` writes opens in Perfetto, and tells of every instruction that was run.

Of the JSON format of traces: complete events with a time and a duration on tracks that have names, and on no track
two events that overlap without one lying within the other, as those are dropped when a trace is opened.
"""

import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

MILLRACE = sys.argv[1]
STEPS = 3
NETWORK = ["--model", "fashion_cnn", "--batch", "4", "--threads-per-device", "1"]
TWO_STAGES = ["--placement", "0:0.0:1", "--schedule", "1f1b-flush", "--microbatches", "4", "--oversubscribe"]
FACES = ["--model", "mobilefacenet", "--image", "32", "--classes", "50", "--head", "arcface"]
JOBS = {
    "one device": NETWORK,
    "two devices": [*NETWORK, "--devices", "2", "--oversubscribe"],
    "two stages": [*NETWORK, *TWO_STAGES],
    "in 16 bits": [*NETWORK, *TWO_STAGES, "--precision", "bf16"],
    "divided head": [*NETWORK[2:], *FACES, "--devices", "2", "--head-parallel", "mp", "--oversubscribe"],
}
faults = []


def require(holds, sentence):
    if not holds:
        faults.append(sentence)


def run(*arguments):
    done = subprocess.run([MILLRACE, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: {done.stderr}")
    return done.stdout


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def overlaps(events):
    """Pairs of names on one track of which neither lies within the other."""
    open_events = []
    for begin, length, name in sorted((event["ts"], -event["dur"], event["name"]) for event in events):
        while open_events and open_events[-1][0] <= begin + 1e-4:
            open_events.pop()
        if open_events and begin - length > open_events[-1][0] + 1e-4:
            yield open_events[-1][1], name
        open_events.append((begin - length, name))


def check_format(job, events):
    named = {(event["pid"], event["tid"]) for event in events if event.get("name") == "thread_name"}
    tracks = collections.defaultdict(list)
    for event in events:
        require(event.get("ph") in ("X", "M"), f"{job}: an event of kind {event.get('ph')!r}")
        require(isinstance(event.get("pid"), int) and isinstance(event.get("tid"), int), f"{job}: {event} has no track")
        if event["ph"] != "X":
            continue
        times = [event.get("ts"), event.get("dur")]
        if not all(is_number(time) and time >= 0 for time in times) or not event.get("name"):
            require(False, f"{job}: {event} has no name or no times")
            continue
        tracks[event["pid"], event["tid"]].append(event)
    for track, there in tracks.items():
        require(track in named, f"{job}: track {track} has no name")
        for first, second in overlaps(there):
            require(False, f"{job}: on track {track} '{second}' overlaps '{first}'")


def check_instructions(job, events, program):
    instructions = [event for event in events if event.get("cat") == "instruction"]
    for one in instructions:
        told = one["args"]
        sound = told.get("kind") and told.get("layer") and told.get("bytes", 0) > 0
        require(sound and told.get("arithmetic", -1) >= 0, f"{job}: '{one['name']}' has {told}")
    convolutions = [one for one in instructions if one["name"] in ("conv1", "layer1.0.conv1", "layers.0.layers.0")]
    require(convolutions and all(one["args"]["arithmetic"] > 1e5 for one in convolutions),
            f"{job}: no convolution tells its arithmetic")
    ran = collections.Counter(one["name"] for one in instructions)
    for name in program:
        require(ran[name] >= STEPS, f"{job}: '{name}' of the program was run {ran[name]} times in {STEPS} steps")


def main():
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "trace.json"
        for job, arguments in JOBS.items():
            run("train", *arguments, "--steps", str(STEPS), "--quiet", "--trace", str(path))
            printed = run("plan", *arguments, "--print-program")
            program = re.findall(r"^ +\d+  \w+ +compute +(\S{1,43}) ", printed, re.MULTILINE)
            require(len(program) > 50, f"{job}: `plan --print-program` names {len(program)} instructions")
            trace = json.loads(path.read_text(), parse_constant=lambda value: sys.exit(f"{value} is no JSON"))
            require(trace["dropped"] == 0, f"{job}: {trace['dropped']} events had no room")
            check_format(job, trace["traceEvents"])
            check_instructions(job, trace["traceEvents"], program)
    if faults:
        sys.exit("\n".join(faults[:40]))


main()
