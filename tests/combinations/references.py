"""Which plain job each draw must equal, and the runs of those, each made once."""

import collections
import functools
import itertools
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
WIRE = 2  # one that begins from weights that differ as what travels, or is kept, is rounded
BETWEEN = 2  # the other end of what an order that is not fixed may do
SAMPLES = 12  # runs from moved weights at most: whether one of them passes a kink of the loss is a matter of luck

Start = collections.namedtuple("Start", "path weights")


class Unknown(Exception):
    """No reference could be made: its own run failed."""


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
    flags = job.common(draw, data) + ["--batch", str(job.global_batch(draw)), *job.threads()]
    if draw["head-parallel"].startswith("pfc"):
        flags += job.words(draw, ["head-parallel", "head-momentum"])
    if scale_is_dynamic(draw) and not draw["scale"]:
        flags += ["--loss-scale", "dynamic"]
    if not axes.normalises(draw):
        return flags
    if not whole_groups(draw):
        return None
    if axes.micro_batches(draw) > 1:
        flags += ["--microbatches", str(axes.micro_batches(draw))]
    return flags


def wire(draw):
    """What activations and gradients travel as."""
    if not axes.travels(draw):
        return "fp32"
    return draw["wire"] or draw["precision"].removesuffix("-storage") or "fp32"


def coarsest(draw):
    head = (draw["head-dtype"] if draw["head"] else "") or "fp32"
    kinds = (draw["precision"].removesuffix("-storage") or "fp32", wire(draw), head)
    return max(kinds, key=LAST_BIT.get)


def in_float32(flags):
    """The same without 16 bits."""
    plain, skip = [], False
    for flag in flags:
        if flag in ("--precision", "--precision-arithmetic", "--precision-keep", "--comm-dtype", "--head-dtype"):
            skip = True
        elif skip:
            skip = False
        else:
            plain.append(flag)
    return plain


def directly(flags):
    """The same without convolutions by way of transforms."""
    return ["direct" if flag == "winograd" else flag for flag in flags]


def scale_is_dynamic(draw):
    if draw["scale"] in ("dynamic", "window", "bounded", "overflow"):
        return True
    return draw["scale"] == "" and "fp16" in (draw["precision"], draw["wire"])


def segments(draw, first=0):
    """Steps at which the pipeline is empty: where something is saved or measured, an epoch ends, and while a
    dynamic scale is being found after 1, 2, 4 ... steps since it last changed."""
    if not is_stale(draw):
        return [first, job.STEPS]
    stops = {job.STEPS}
    if draw["resume"] or draw["eval"] == "every":
        stops.add(job.MIDDLE)
    if job.steps_of_epoch(draw):
        stops.update(range(0, job.STEPS, job.steps_of_epoch(draw)))
    window = 2 if draw["scale"] in ("window", "bounded") else 2000
    marks, good = [first], first % window
    while marks[-1] < job.STEPS:
        most = good + 1 if scale_is_dynamic(draw) else 32
        next_mark = min([marks[-1] + most] + [stop for stop in stops if stop > marks[-1]])
        good = (good + next_mark - marks[-1]) % window
        marks.append(next_mark)
    return marks


def plain_model(draw, data):
    """Flags of the plain model, or None if it does not know what the draw is."""
    if draw["head-parallel"] == "pfc" and len(axes.stages_of(draw)[-1]) > 1:
        return None
    if is_stale(draw) and draw["scale"] == "overflow" or draw["trained"] == "thawed":
        return None
    scale = "dynamic" if scale_is_dynamic(draw) and not draw["scale"] else draw["scale"]
    quiet = {**draw, "scale": scale, "wire": "", "recompute": "", "share": "", "finite": "", "trace": "",
             "backend": "", "plan": "", "total": "", "threads": "", "eval": draw["eval"] if draw["eval"] == "share" else ""}
    return [*job.flags_of(quiet, data), "--ranks", str(axes.ranks_of(draw)), "--segments",
            ",".join(map(str, segments(draw)))]


def some_of(stages):
    """The ways to take some of them and leave others."""
    return [some for count in range(1, len(stages)) for some in itertools.combinations(stages, count)]


def moved_by(weights, bit, seed):
    """The weights, each a bit larger or smaller, and statistics as they are."""
    source = numpy.random.default_rng(seed)
    return {name: values if results.is_statistic(name) else
            values * (1 + bit * source.choice([-1, 1], values.shape))
            for name, values in weights.items() if name != "head.centres"}


def begun(weights):
    """The same with statistics as they are before the first step."""
    return {name: numpy.full_like(values, 0 if name.endswith("mean") else 1) if results.is_statistic(name)
            else values for name, values in weights.items()}


class Starts:
    """Weights to begin with: as they are, and moved for each kind of number, which is made when asked for."""

    def __init__(self, weights, folder):
        self.exact, self.folder = Start(None, weights), folder
        self.lock = threading.Lock()

    def moved(self, kind, sample):
        path = self.folder / f"moved-{kind}-{sample}.safetensors"
        with self.lock:
            if not path.exists():
                results.write_safetensors(path, moved_by(self.exact.weights, MOVES[kind], sample))
            return Start(path, {**self.exact.weights, **results.read_safetensors(path)})


class References:
    """Runs references when they are first asked for; threads share them, and the last ones are kept."""

    def __init__(self, runner, data, place, most=1 << 30):
        self.runner, self.data = runner, data
        self.place = place  # where the files of a model go
        self.lock = threading.Lock()
        self.known = {}
        self.numbers = itertools.count()
        self.most = most  # bytes of results to keep

    def forget(self):
        """All but as many results as there is room for, the oldest first."""
        with self.lock:
            sizes = {key: entry["value"].bytes() for key, entry in self.known.items()
                     if isinstance(entry.get("value"), results.Result)}
            total = sum(sizes.values())
            for key, size in sizes.items():
                if total > self.most:
                    del self.known[key]
                    total -= size

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
            folder = self.place(flags[flags.index("--model") + 1]) / f"reference-{next(self.numbers)}"
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
        self.forget()
        return self.once(tuple(flags), make)

    def start(self, draw):
        """What a job begins with."""
        model = axes.MODELS[draw["model"]]
        head = draw["head"] != ""

        def make():
            folder = self.place(draw["model"]) / f"start-{draw['model']}-{head}"
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
            return Starts(begun(weights), folder)
        return self.once(("start", draw["model"], head), make)

    def expected(self, draw):
        """What the draw must leave behind; None while nothing is known to say it."""
        flags = one_device(draw, self.data) or plain_model(draw, self.data)
        if flags is None:
            return None
        if is_stale(draw) and draw["static"] == "off":
            # Whatever is ready runs: no weights are older than with the fixed order, none newer
            # than without a pipeline; each stage is anywhere between by itself.
            flags = plain_model({**draw, "static": "on"}, self.data)
            newest = plain_model({**draw, "static": "", "schedule": "gpipe",
                                  "microbatches": str(axes.micro_batches(draw))}, self.data)
            return self.around(draw, flags, self.start(draw), [("newest", newest, BETWEEN)] + [
                ("newest", [*flags, "--newest", ",".join(map(str, stages))], BETWEEN)
                for stages in some_of(range(len(axes.stages_of(draw)) - 1))])
        return self.around(draw, flags, self.start(draw))

    def resumed(self, draw, checkpoint, folder):
        """What the draw, which is not stale, must leave behind if it goes on from the checkpoint."""
        flags = plain_model(draw, self.data)
        if flags is None:
            return None
        found = results.Result(None, checkpoint)
        folder.mkdir(parents=True)
        averages = {f"average:{name}": values for name, values in found.averages.items()}
        results.write_safetensors(folder / "start", {**found.weights, **found.states, **averages})
        flags = [*flags[:flags.index("--segments")], "--segments", f"{job.MIDDLE},{job.STEPS}",
                 "--start", str(folder / "start")]
        return self.around(draw, flags, Starts(found.weights, folder))

    def around(self, draw, flags, starts, others=()):
        """The job, and what rounding may do to it; others: (kind, flags, factor)."""
        def same(kind, other, factor):
            return results.Other(kind, self.run(other), starts.exact.weights, factor)

        def moved(kind, factor, sample):
            start = starts.moved(kind, sample)
            return results.Other(f"moved {kind}", self.run([*flags, "--load-weights", str(start.path)]),
                                 start.weights, factor)

        wide = in_float32(flags)
        makers = [functools.partial(moved, "fp32", ROUNDING, 0)]
        makers += [functools.partial(same, *other) for other in others]
        if wide != flags:
            makers.append(functools.partial(same, "wide", wide, PRECISION))
        if draw["convolutions"] == "winograd":  # which rounds more than it sums
            makers.append(functools.partial(same, "direct", directly(flags), PRECISION))
        for sample in range(SAMPLES):
            if coarsest(draw) != "fp32":
                makers.append(functools.partial(moved, coarsest(draw), WIRE, sample))
            if sample > 0:
                makers.append(functools.partial(moved, "fp32", ROUNDING, sample))
        expected = results.Expected(self.run(flags), starts.exact.weights, makers, LAST_BIT[coarsest(draw)])
        if wide != flags:
            faults = expected.unmoved(self.run(wide))
            if faults:
                raise Unknown(faults[0])
        return expected
