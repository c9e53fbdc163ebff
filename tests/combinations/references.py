"""Which plain job each draw must equal, and the runs of those, each made once."""

import pathlib
import shutil
import threading

import numpy

import axes
import job
import results

BITS = 2.0 ** -23


class Unknown(Exception):
    """No reference could be made: its own run failed."""


def has_batch_norm(draw):
    return "plain" not in axes.MODELS[draw["model"]]


def is_stale(draw):
    return draw["schedule"] in axes.STALE and len(axes.stages_of(draw)) > 1


def whole_groups(draw):
    """Whether every batch norm sees whole micro-batches."""
    alone = all(len(stage) == 1 for stage in axes.stages_of(draw))
    return (alone or draw["sync"] == "on" or draw["replicas"] == "roundrobin"
            or draw["parallel"] == "model")


def one_device(draw, data):
    """Flags of the program itself on one device, or None if its words cannot say what the draw is."""
    if is_stale(draw) or draw["head-parallel"] == "pfc":
        return None
    flags = job.common(draw, data) + ["--batch", str(job.global_batch(draw))]
    if not has_batch_norm(draw):
        return flags
    if not whole_groups(draw):
        return None
    if job.micro_batches(draw) > 1:
        flags += ["--microbatches", str(job.micro_batches(draw))]
    return flags


def in_float32(flags):
    """The same without 16 bits."""
    plain, skip = [], False
    for flag in flags:
        if flag in ("--precision", "--precision-arithmetic", "--comm-dtype"):
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
    quiet = {**draw, "eval": "", "wire": "", "recompute": "", "share": "", "finite": ""}
    return [*job.flags_of(quiet, data), "--ranks", draw["ranks"], "--segments",
            ",".join(map(str, segments(draw)))]


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
            source = numpy.random.default_rng(3)
            moved = {}
            for name, values in weights.items():
                if name.endswith("running_mean"):
                    moved[name] = numpy.zeros_like(values)
                elif name.endswith("running_var"):
                    moved[name] = numpy.ones_like(values)
                elif name.endswith("num_batches_tracked") or name == "head.centres":
                    continue
                else:
                    moved[name] = values * (1 + BITS * source.choice([-1, 1], values.shape))
            path = folder / "moved.safetensors"
            results.write_safetensors(path, moved)
            return weights, path
        return self.once(("start", draw["model"], head), make)

    def expected(self, draw):
        """What the draw must leave behind; None while nothing is known to say it."""
        flags = one_device(draw, self.data) or plain_model(draw, self.data)
        if flags is None:
            return None
        if is_stale(draw) and draw["static"] == "off":
            return self.expected_within(draw)
        start, moved = self.start(draw)
        coarse = self.run(in_float32(flags)) if in_float32(flags) != flags else None
        return results.Expected(self.run(flags), self.run([*flags, "--load-weights", str(moved)]), start,
                                coarse)

    def expected_within(self, draw):
        """ssp that runs whatever is ready: no weights are older than with the fixed order, none newer
        than without a pipeline. How far apart those two are bounds how far the job may be off."""
        oldest = self.run(plain_model({**draw, "static": "on"}, self.data))
        newest = self.run(plain_model({**draw, "static": "", "schedule": "gpipe",
                                       "microbatches": str(job.micro_batches(draw))}, self.data))
        start, moved = self.start(draw)
        flags = plain_model({**draw, "static": "on"}, self.data)
        return results.Expected(oldest, self.run([*flags, "--load-weights", str(moved)]), start, newest)
