"""Which plain job each draw must equal, and the runs of those, each made once."""

import collections
import functools
import pathlib
import shutil
import threading

import numpy

import axes
import job
import results

# The last bit of a number that is computed, or that travels, with so many.
LAST_BIT = {"fp32": 2.0 ** -23, "fp16": 2.0 ** -11, "bf16": 2.0 ** -8}
# How much the weights of runs beside the reference are moved: as much as the rounding of all passes of
# a job may add up to, or as what travels is rounded.
MOVES = {"fp32": 16 * LAST_BIT["fp32"], "fp16": LAST_BIT["fp16"], "bf16": LAST_BIT["bf16"]}

# How many times as far as another run the draw may be from its reference; docs/testing.md says why.
ROUNDING = 2  # one that begins from weights that differ by what float32 rounds
PRECISION = 4  # the same in float32
WIRE = 2  # one that begins from weights that differ as what travels is rounded
BETWEEN = 2  # the other end of what an order that is not fixed may do

Start = collections.namedtuple("Start", "path weights")


class Unknown(Exception):
    """No reference could be made: its own run failed."""


def has_batch_norm(draw):
    return "plain" not in axes.MODELS[draw["model"]]


def is_stale(draw):
    return draw["schedule"] in axes.STALE and len(axes.stages_of(draw)) > 1


def whole_groups(draw):
    """Whether every batch norm sees all samples of every micro-batch."""
    alone = all(len(stage) == 1 for stage in axes.stages_of(draw))
    return alone or draw["sync"] == "on" or draw["parallel"] == "model"


def one_device(draw, data):
    """Flags of the program itself on one device, or None if its words cannot say what the draw is."""
    if is_stale(draw) or (draw["head-parallel"] == "pfc" and len(axes.stages_of(draw)[-1]) > 1):
        return None
    flags = job.common(draw, data) + ["--batch", str(job.global_batch(draw))]
    if draw["head-parallel"] == "pfc":
        flags += job.words(draw, ["head-parallel"])
    if scale_is_dynamic(draw) and not draw["scale"]:
        flags += ["--loss-scale", "dynamic"]
    if not has_batch_norm(draw):
        return flags
    if not whole_groups(draw):
        return None
    if axes.micro_batches(draw) > 1:
        flags += ["--microbatches", str(axes.micro_batches(draw))]
    return flags


def wire(draw):
    """What activations and gradients travel as."""
    if axes.devices_of(draw) == 1:
        return "fp32"
    return draw["wire"] or draw["precision"].removesuffix("-storage") or "fp32"


def coarsest(draw):
    head = "bf16" if draw["head"] and draw["head-dtype"] else "fp32"
    kinds = (draw["precision"].removesuffix("-storage") or "fp32", wire(draw), head)
    return max(kinds, key=LAST_BIT.get)


def in_float32(flags):
    """The same without 16 bits."""
    plain, skip = [], False
    for flag in flags:
        if flag in ("--precision", "--precision-arithmetic", "--comm-dtype", "--head-dtype"):
            skip = True
        elif skip:
            skip = False
        else:
            plain.append(flag)
    return plain


def scale_is_dynamic(draw):
    if draw["scale"] in ("dynamic", "overflow"):
        return True
    return draw["scale"] == "" and "fp16" in (draw["precision"], draw["wire"])


def segments(draw, first=0):
    """Steps at which the pipeline is empty: where something is saved or measured, and while a
    dynamic scale is being found after 1, 2, 4 ... steps."""
    if not is_stale(draw):
        return [first, job.STEPS]
    stops = {job.STEPS}
    if draw["resume"] or draw["eval"] == "every":
        stops.add(job.MIDDLE)
    marks, good = [first], first
    while marks[-1] < job.STEPS:
        most = good + 1 if scale_is_dynamic(draw) else 32
        next_mark = min([marks[-1] + most] + [stop for stop in stops if stop > marks[-1]])
        good += next_mark - marks[-1]
        marks.append(next_mark)
    return marks


def plain_model(draw, data):
    """Flags of the plain model, or None if it does not know what the draw is."""
    if draw["head-parallel"] == "pfc" and len(axes.stages_of(draw)[-1]) > 1:
        return None
    if is_stale(draw) and draw["scale"] == "overflow":
        return None
    scale = "dynamic" if scale_is_dynamic(draw) and not draw["scale"] else draw["scale"]
    quiet = {**draw, "scale": scale, "eval": "", "wire": "", "recompute": "", "share": "", "finite": ""}
    return [*job.flags_of(quiet, data), "--ranks", draw["ranks"], "--segments",
            ",".join(map(str, segments(draw)))]


def moved_by(weights, bit):
    """The weights, each a bit larger or smaller, and statistics as they are."""
    source = numpy.random.default_rng(3)
    return {name: values if results.is_statistic(name) else
            values * (1 + bit * source.choice([-1, 1], values.shape))
            for name, values in weights.items() if name != "head.centres"}


def begun(weights):
    """The same with statistics as they are before the first step."""
    return {name: numpy.full_like(values, 0 if name.endswith("mean") else 1) if results.is_statistic(name)
            else values for name, values in weights.items()}


def starts_from(weights, folder):
    """By name: the weights as they are, and moved for each kind of number."""
    starts = {"exact": Start(None, weights)}
    for kind, bit in MOVES.items():
        path = folder / f"moved-{kind}.safetensors"
        results.write_safetensors(path, moved_by(weights, bit))
        starts[kind] = Start(path, {**weights, **results.read_safetensors(path)})
    return starts


class References:
    """Runs references when they are first asked for; threads share them."""

    def __init__(self, runner, data, folder):
        self.runner, self.data, self.folder = runner, data, pathlib.Path(folder)
        self.lock = threading.Lock()
        self.known = {}

    def once(self, key, make):
        with self.lock:
            entry = self.known.setdefault(key, {"lock": threading.Lock()})
        with entry["lock"]:
            if "fault" in entry:
                raise Unknown(entry["fault"])
            if "value" not in entry:
                try:
                    entry["value"] = make()
                except Unknown as fault:
                    entry["fault"] = str(fault)
                    raise
            return entry["value"]

    def run(self, flags):
        """The result of the program, or of the plain model, with these flags."""
        def make():
            with self.lock:
                number = len(self.known)
            folder = self.folder / f"reference-{number}"
            last = folder / "run" / f"step-{job.STEPS:08d}"
            if "--segments" in flags:
                command = [self.runner.helper, *flags, "--output", str(last)]
            else:
                command = self.runner.command(1, ["train", *flags, "--checkpoint", str(folder / "run"),
                                                  "--quiet"])
            command += ["--metrics", str(folder / "metrics")]
            outcome = self.runner.run(command, folder)
            if outcome.status != 0:
                raise Unknown(f"one device ends with {outcome.status}: {outcome.output.strip()[:400]}\n"
                              f"  {' '.join(command)}")
            result = results.Result(folder / "metrics", last)
            shutil.rmtree(folder)
            return result
        return self.once(tuple(flags), make)

    def start(self, draw):
        """What a job begins with, see starts_from."""
        model = axes.MODELS[draw["model"]]
        head = draw["head"] != ""

        def make():
            folder = self.folder / f"start-{draw['model']}-{head}"
            flags = ["--model", draw["model"], "--image", str(model["image"]),
                     "--channels", str(model["channels"]), "--classes", str(model["classes"]),
                     "--steps", "1", "--seed", "7", "--batch", "2", "--lr", "0", "--weight-decay", "0",
                     "--threads-per-device", "1", "--oversubscribe", "--conv-algo", "direct",
                     "--dropout", "off", *(["--head", "softmax"] if head else [])]
            command = self.runner.command(1, ["train", *flags, "--checkpoint", str(folder / "run"),
                                              "--metrics", str(folder / "metrics"), "--quiet"])
            outcome = self.runner.run(command, folder)
            if outcome.status != 0:
                raise Unknown(f"no starting weights: {outcome.output.strip()[:400]}")
            weights = results.Result(folder / "metrics", folder / "run" / "step-00000001").weights
            shutil.rmtree(folder / "run")
            return starts_from(begun(weights), folder)
        return self.once(("start", draw["model"], head), make)

    def expected(self, draw):
        """What the draw must leave behind; None while nothing is known to say it."""
        flags = one_device(draw, self.data) or plain_model(draw, self.data)
        if flags is None:
            return None
        if is_stale(draw) and draw["static"] == "off":
            # Whatever is ready runs: no weights are older than with the fixed order, none newer
            # than without a pipeline.
            flags = plain_model({**draw, "static": "on"}, self.data)
            newest = plain_model({**draw, "static": "", "schedule": "gpipe",
                                  "microbatches": str(axes.micro_batches(draw))}, self.data)
            return self.around(draw, flags, self.start(draw), [(newest, "exact", BETWEEN)])
        return self.around(draw, flags, self.start(draw))

    def resumed(self, draw, checkpoint, folder):
        """What the draw, which is not stale, must leave behind if it goes on from the checkpoint."""
        flags = plain_model(draw, self.data)
        if flags is None:
            return None
        found = results.Result(None, checkpoint)
        folder.mkdir(parents=True)
        results.write_safetensors(folder / "start", {**found.weights, **found.states})
        flags = [*flags[:flags.index("--segments")], "--segments", f"{job.MIDDLE},{job.STEPS}",
                 "--start", str(folder / "start")]
        return self.around(draw, flags, starts_from(found.weights, folder))

    def around(self, draw, flags, starts, others=()):
        """The job, and what rounding may do to it; others: (flags, weights to begin with, factor)."""
        others = [(flags, "fp32", ROUNDING), *others]

        def make(other, name, factor):
            load = [] if name == "exact" else ["--load-weights", str(starts[name].path)]
            return results.Other(self.run([*other, *load]), starts[name].weights, factor)

        wide = in_float32(flags)
        if wide != flags:
            others.append((wide, "exact", PRECISION))
        if wire(draw) != "fp32":
            others.append((flags, wire(draw), WIRE))
        makers = [functools.partial(make, *other) for other in others]
        expected = results.Expected(self.run(flags), starts["exact"].weights, makers, LAST_BIT[coarsest(draw)])
        if wide != flags:
            faults = expected.unmoved(self.run(wide))
            if faults:
                raise Unknown(faults[0])
        return expected
