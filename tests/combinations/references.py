"""Which plain job each draw must equal, and the runs of those, each made once."""

import pathlib
import shutil
import threading

import numpy

import axes
import job
import results

# The last bit of a number that is computed, or that travels, with so many.
LAST_BIT = {"fp32": 2.0 ** -23, "fp16": 2.0 ** -11, "bf16": 2.0 ** -8}


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
    """The weights, each a bit larger or smaller, and statistics as they begin."""
    source = numpy.random.default_rng(3)
    moved = {}
    for name, values in weights.items():
        if name.endswith("running_mean"):
            moved[name] = numpy.zeros_like(values)
        elif name.endswith("running_var"):
            moved[name] = numpy.ones_like(values)
        elif name != "head.centres":
            moved[name] = values * (1 + bit * source.choice([-1, 1], values.shape))
    return moved


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
        """The weights that a job begins with, by name, and files of them as they are and moved."""
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
            paths = {}
            for kind, bit in LAST_BIT.items():
                paths[kind] = folder / f"moved-{kind}.safetensors"
                results.write_safetensors(paths[kind], moved_by(weights, bit))
            shutil.rmtree(folder / "run")
            return weights, paths
        return self.once(("start", draw["model"], head), make)

    def expected(self, draw):
        """What the draw must leave behind; None while nothing is known to say it."""
        flags = one_device(draw, self.data) or plain_model(draw, self.data)
        if flags is None:
            return None
        if is_stale(draw) and draw["static"] == "off":
            return self.expected_within(draw)
        start, moved = self.start(draw)
        coarse = [self.run(in_float32(flags))] if in_float32(flags) != flags else []
        if wire(draw) != "fp32":
            coarse.append(self.run([*flags, "--load-weights", str(moved[wire(draw)])]))
        return results.Expected(self.run(flags), self.run([*flags, "--load-weights", str(moved["fp32"])]),
                                start, coarse, LAST_BIT[coarsest(draw)])

    def expected_within(self, draw):
        """ssp that runs whatever is ready: no weights are older than with the fixed order, none newer
        than without a pipeline. How far apart those two are bounds how far the job may be off."""
        oldest = self.run(plain_model({**draw, "static": "on"}, self.data))
        newest = self.run(plain_model({**draw, "static": "", "schedule": "gpipe",
                                       "microbatches": str(axes.micro_batches(draw))}, self.data))
        start, moved = self.start(draw)
        flags = plain_model({**draw, "static": "on"}, self.data)
        coarse = [newest]
        if wire(draw) != "fp32":
            coarse.append(self.run([*flags, "--load-weights", str(moved[wire(draw)])]))
        return results.Expected(oldest, self.run([*flags, "--load-weights", str(moved["fp32"])]), start,
                                coarse, LAST_BIT[coarsest(draw)])
