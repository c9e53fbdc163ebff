"""Everything that can be said of a step, and draws from it that cover all pairs.

A draw is a dictionary: axis -> word. The first word of an axis says nothing: its flags are left out.
"""

import random

import numpy

# The families. Images are so small that a step takes milliseconds, and so large that batch norms
# still see several values per channel. What a draw costs is the starting values and the checkpoints of
# the weights, so that the `share` of a model in the draws falls with how many it has.
MODELS = {
    "fashion_cnn": {"image": 14, "channels": 1, "classes": 10, "share": 100},
    "mobilefacenet": {"image": 18, "channels": 3, "classes": 12, "face": True, "share": 35},
    "resnet18": {"image": 34, "channels": 3, "classes": 7, "share": 5},
    "iresnet18": {"image": 18, "channels": 3, "classes": 12, "face": True, "share": 3},
    "squeezenet1_1": {"image": 33, "channels": 3, "classes": 7, "dropout": True, "plain": True, "share": 12},
    "mobilenet_v3_large": {"image": 34, "channels": 3, "classes": 7, "dropout": True, "share": 5},
    "mobilenet_v2": {"image": 34, "channels": 3, "classes": 7, "dropout": True, "share": 3},
    "efficientnet_b0": {"image": 34, "channels": 3, "classes": 7, "dropout": True, "share": 2},
    "densenet121": {"image": 66, "channels": 3, "classes": 7, "share": 1},
    "alexnet": {"image": 63, "channels": 3, "classes": 10, "dropout": True, "plain": True, "share": 1},
    "resnet50": {"image": 34, "channels": 3, "classes": 7, "share": 0.6},
    "resnext50_32x4d": {"image": 34, "channels": 3, "classes": 7, "share": 0.4},
    "vgg16": {"image": 32, "channels": 3, "classes": 10, "dropout": True, "plain": True, "share": 0.3},
    "vgg16_bn": {"image": 32, "channels": 3, "classes": 10, "dropout": True, "share": 0.3},
}
LARGE = ("alexnet", "vgg16", "vgg16_bn")  # tens of millions of weights

# The devices of each stage, numbered over the whole job.
LAYOUTS = {
    "1": [[0]],
    "2": [[0, 1]],
    "3": [[0, 1, 2]],
    "4": [[0, 1, 2, 3]],
    "5": [[0, 1, 2, 3, 4]],
    "6": [[0, 1, 2, 3, 4, 5]],
    "1.1": [[0], [1]],
    "2.1": [[0, 1], [2]],
    "1.2": [[0], [1, 2]],
    "2.2": [[0, 1], [2, 3]],
    "3.1": [[0, 1, 2], [3]],
    "1.3": [[0], [1, 2, 3]],
    "3.2": [[0, 1, 2], [3, 4]],
    "1.1.1": [[0], [1], [2]],
    "1.2.1": [[0], [1, 2], [3]],
    "2.1.1": [[0, 1], [2], [3]],
    "2.2.1": [[0, 1], [2, 3], [4]],
    "1.1.1.1": [[0], [1], [2], [3]],
    "same1.1": [[0], [0]],
    "same2.2": [[0, 1], [0, 1]],
    "turned2.2": [[0, 1], [1, 0]],
    "back1.1.1": [[0], [1], [0]],
    "turns1.1.1.1": [[0], [1], [0], [1]],
    "turns2.1.2.1": [[0, 1], [2], [0, 1], [2]],
    "shared2.1": [[0, 1], [1]],
}

AXES = {
    "model": list(MODELS),
    "layout": list(LAYOUTS),
    "ranks": ["1", "2", "3", "turned"],
    "threads": ["", "2"],
    "batch": ["2", "3", "4", "1"],
    "parallel": ["", "data", "model", "hybrid"],
    "schedule": ["", "gpipe", "1f1b-flush", "zero-bubble", "interleaved", "1f1b", "ssp",
                 "2bw"],
    "static": ["", "on", "off"],
    "replicas": ["", "split", "roundrobin"],
    "microbatches": ["", "1", "2", "3", "4"],
    "cut": ["", "weights", "after"],
    "plan": ["", "file", "layers"],
    "total": ["", "said"],
    "optimizer": ["", "plain", "nesterov", "long", "adamw", "adamw-betas", "adamw-odd", "lars", "lars-plain", "lamb",
                  "rmsprop"],
    "decay": ["", "0", "0.01", "0.01-all"],
    "clip": ["", "0.5", "1000", "0.001", "backbone"],
    "share": ["", "on"],
    "sync": ["", "on"],
    "precision": ["", "fp16", "bf16", "bf16-storage"],
    "wire": ["", "fp32", "fp16", "bf16"],
    "keep": ["", "first"],
    "recompute": ["", "none", "cheap", "all"],
    "convolutions": ["", "winograd"],
    "backend": ["", "strict", "strict-eager", "strict-random"],
    "scale": ["", "32", "1024", "0.125", "dynamic", "window", "bounded", "overflow"],
    "dropout": ["", "off"],
    "smoothing": ["", "0.1", "0.9"],
    "trained": ["", "late", "middle", "only", "decayed", "scaled", "both", "thawed"],
    "norms": ["", "frozen"],
    "weighted": ["", "balanced", "file"],
    "average": ["", "0.9"],
    "rate": ["", "step", "cosine", "polynomial", "root", "warmup"],
    "head": ["", "softmax", "arcface", "arcface-32", "cosface", "combined", "adaface", "magface",
             "curricularface", "filtered"],
    "head-rate": ["", "high"],
    "head-parallel": ["", "dp", "mp", "pfc", "pfc-few", "pfc-all"],
    "head-momentum": ["", "none", "frozen"],
    "head-gradient": ["", "plain"],
    "head-dtype": ["", "bf16", "fp16"],
    "eval": ["", "end", "every", "share", "faces"],
    "epochs": ["", "short"],
    "data": ["raw", "small", "synthetic", "changed", "jitter", "mixup", "cutmix", "either",
             "sampled"],
    "finite": ["", "on"],
    "trace": ["", "on"],
    "resume": ["", "same", "alone", "apart", "stages", "hybrid"],
}

DEFAULT = {axis: words[0] for axis, words in AXES.items()}

STALE = ("1f1b", "ssp", "2bw")
MIXED = ("mixup", "cutmix", "either")
SHARE_OF_NONSENSE = 0.15  # of the draws say one or two things that may not fit the rest, to see them refused


def stages_of(draw):
    return LAYOUTS[draw["layout"]]


def devices_of(draw):
    """How many different devices the job has."""
    return len({device for stage in stages_of(draw) for device in stage})


def ranks_of(draw):
    return 2 if draw["ranks"] == "turned" else int(draw["ranks"])


def normalises(draw):
    """Whether samples of a step meet each other in batch norms."""
    return "plain" not in MODELS[draw["model"]] and not draw["norms"]


def travels(draw):
    """Whether anything goes from device to device, or from stage to stage on one."""
    return devices_of(draw) > 1 or len(stages_of(draw)) > 1


def turns_of(stages):
    """How many placements take the stages in turn; 0 if they do not."""
    turns = next((i for i in range(1, len(stages)) if stages[i] == stages[0]), len(stages))
    devices = [device for stage in stages[:turns] for device in stage]
    in_turn = len(stages) % turns == 0 and all(
        stage == stages[i % turns] for i, stage in enumerate(stages))
    return turns if in_turn and len(devices) == len(set(devices)) else 0


def in_range(draw):
    """The same with a scale that fits: what travels in fp16 overflows earlier than what stays, and the steep
    gradients of DenseNet at this size with any of 16 bits."""
    if draw["model"] == "densenet121":
        draw = {**draw, "precision": "", "wire": "", "keep": ""}
    if "fp16" in (draw["precision"], draw["wire"]) or draw["model"] == "iresnet18":
        # With the statistics of the beginning activations leave fp16, or losses grow to millions.
        draw = {**draw, "norms": ""}
    if "fp16" in (draw["precision"], draw["wire"]) and travels(draw):
        return {**draw, "scale": "32"}
    return draw


def mended(draw):
    """The same draw without what is known to say nothing beside the rest of it."""
    draw = dict(draw)
    model = MODELS[draw["model"]]
    stages = stages_of(draw)
    widest = max(len(stage) for stage in stages)
    wanting = {
        "ranks": devices_of(draw) >= ranks_of(draw),
        "epochs": draw["data"] != "synthetic" and draw["eval"] != "share",
        "static": draw["schedule"] == "ssp",
        "cut": len(stages) > 1,
        "replicas": widest > 1,
        "parallel": widest > 1 and (len(stages) == 1 or draw["parallel"] == "data"),
        "share": widest > 1,
        "norms": "plain" not in model,
        "sync": widest > 1 and "plain" not in model and not draw["norms"],
        "weighted": draw["data"] != "synthetic",
        "eval": draw["data"] != "synthetic" if draw["eval"] == "share" else "face" in model or draw["eval"] != "faces",
        "dropout": "dropout" in model,
        "head": "face" in model,
        "head-rate": "face" in model,
        "clip": "face" in model or draw["clip"] != "backbone",
        "keep": draw["precision"] != "",
    }
    for axis, meant in wanting.items():
        if not meant:
            draw[axis] = DEFAULT[axis]
    if draw["head"] and len(stages[-1]) > 1 and draw["replicas"] == "roundrobin":
        draw["replicas"] = ""
    if draw["replicas"] == "roundrobin":
        draw["parallel"] = draw["parallel"] if draw["parallel"] == "data" else ""
        draw["sync"] = ""
    if draw["parallel"] in ("model", "hybrid"):
        draw["sync"] = "" if draw["parallel"] == "model" else draw["sync"]
    if not draw["head"]:
        draw["head-parallel"] = draw["head-gradient"] = draw["head-dtype"] = ""
    else:
        draw["eval"] = draw["eval"] if draw["eval"] == "faces" else ""
        draw["smoothing"] = draw["weighted"] = ""
        draw["trained"] = draw["trained"] if draw["trained"] != "only" else "late"  # centres are trained
        if draw["data"] in MIXED:
            draw["data"] = "changed"
        if draw["head"] == "softmax":
            draw["head-gradient"] = ""
        if draw["head"] == "curricularface" and draw["head-parallel"] in ("pfc", "pfc-few"):
            draw["head-parallel"] = "mp"
        if draw["head"] in ("adaface", "curricularface"):
            draw["microbatches"] = "1"  # they look at whole steps
    if draw["schedule"] in STALE and len(stages) > 1:
        draw["average"] = ""  # no step has weights of its own
        draw["clip"] = ""  # stages that update by themselves know of no common norm
        if draw["scale"] in ("overflow", "window", "bounded"):
            draw["scale"] = "dynamic"  # each stage skips by itself: tests/train/overflow_test.cpp
        if draw["head"] and draw["schedule"] == "2bw":
            draw["schedule"] = "1f1b"
    in_stages = len(stages) > 1 or draw["resume"] == "stages"
    if draw["scale"] == "overflow" and draw["trained"] in ("late", "only", "both", "thawed") and in_stages:
        draw["scale"] = "dynamic"  # the first device may have no gradient that could overflow
    draw = in_range(draw)
    if draw["head-parallel"].startswith("pfc"):
        draw["microbatches"] = "1"
        if draw["head-momentum"] == "none" and (
                "adamw" in draw["optimizer"] or draw["optimizer"] in ("lamb", "rmsprop")):
            draw["head-momentum"] = ""  # they cannot do without their moments
    else:
        draw["head-momentum"] = ""
    if draw["schedule"] != "ssp" or draw["static"] == "off" and devices_of(draw) < sum(map(len, stages)):
        draw["static"] = ""
    if draw["schedule"] == "interleaved":
        turns = turns_of(stages)
        whole = draw["head"] in ("adaface", "curricularface") and turns > 1
        if not turns or whole or draw["replicas"] == "roundrobin":
            draw["schedule"] = ""
        elif draw["microbatches"] and int(draw["microbatches"]) % turns:
            draw["microbatches"] = ""
    if draw["schedule"] == "2bw":
        draw["microbatches"] = draw["microbatches"] if draw["microbatches"] == "4" else ""
    return with_room(with_one_reference(draw))


def with_one_reference(draw):
    """The same where one device can say what it comes to: layers that a plan divides see all samples, and
    the plain model thaws nothing."""
    widest = max(map(len, stages_of(draw)))
    whole = len(stages_of(draw)) == 1 and draw["replicas"] != "roundrobin"
    if draw["plan"] == "layers" and (widest == 1 or not whole):
        draw = {**draw, "plan": "file"}
    if draw["plan"] == "layers" and normalises(draw) and draw["parallel"] != "model":
        draw = {**draw, "sync": "on"}
    if draw["trained"] == "thawed":
        if draw["schedule"] in STALE and len(stages_of(draw)) > 1 or draw["data"] in ("synthetic", "sampled"):
            return {**draw, "trained": "late"}
        if normalises(draw) and widest > 1 and draw["parallel"] != "model":
            if draw["replicas"] == "roundrobin":
                return {**draw, "trained": "late"}
            draw = {**draw, "sync": "on"}
        draw = {**draw, "ranks": "1"}
        if draw["eval"] == "share":
            draw["eval"] = "end"  # so that an epoch has whole steps
    return draw


def micro_batches(draw):
    """As the program chooses them where they are not said."""
    if draw["microbatches"]:
        return int(draw["microbatches"])
    stages = len(stages_of(draw))
    if stages == 1:
        return 1
    return 1 if draw["schedule"] in ("1f1b", "ssp") else 2 * stages


def with_room(draw):
    """With a batch that micro-batches divide, each with two samples for every device of a stage, or four
    for networks that normalise rows of one value."""
    widest = 1 if draw["replicas"] == "roundrobin" else max(map(len, stages_of(draw)))
    batch, parts = int(draw["batch"]), micro_batches(draw)
    least = 4 if "face" in MODELS[draw["model"]] else 2
    while batch * devices_of(draw) % parts or batch * devices_of(draw) < least * widest * parts:
        batch += 1
    return {**draw, "batch": str(batch)}


class Pairs:
    """How often each pair of words of two axes has been drawn."""

    def __init__(self):
        self.places = {(axis, word): place for place, (axis, word) in enumerate(
            (axis, word) for axis, words in AXES.items() for word in words)}
        self.worth = numpy.ones((len(self.places), len(self.places)))  # halved by each draw

    def places_of(self, draw):
        """Of the words in the matrix of all pairs; a batch that is larger than any word has a new one."""
        for item in draw.items():
            if item not in self.places:
                self.places[item] = len(self.places)
                self.worth = numpy.pad(self.worth, (0, 1), constant_values=1)
        found = [self.places[item] for item in draw.items()]
        return numpy.ix_(found, found)

    def gain(self, draw):
        """Each pair of the draw is worth half of what it was the last time."""
        places = self.places_of(draw)
        worth = self.worth[places]
        return float(worth.sum() - worth.trace())

    def add(self, draw):
        places = self.places_of(draw)
        self.worth[places] /= 2

    def coverage(self):
        """(pairs of words seen, pairs that there are)."""
        names = [axis for axis, words in AXES.items() for _ in words]  # larger batches are no words of the axis
        apart = numpy.not_equal.outer(names, names)
        seen = self.worth[:len(names), :len(names)] < 1
        return int((seen & apart).sum()) // 2, int(apart.sum()) // 2


class Sampler:
    """Draws one job after the other, each with as many rarely drawn pairs of words as it can have."""

    def __init__(self, seed, light=False, tries=40):
        self.random = random.Random(seed)
        self.light = light  # none of the large models
        self.tries = tries
        self.pairs = Pairs()
        self.fits = True  # whether the last draw says nothing that need be refused

    def draw(self):
        self.fits = self.random.random() >= SHARE_OF_NONSENSE
        model = self.model()
        best, best_gain = None, -1.0
        for _ in range(self.tries):
            candidate = self.candidate(model)
            if model in LARGE and candidate["schedule"] in STALE:
                candidate["schedule"] = ""  # its reference would keep all versions of all weights
            candidate = mended(candidate) if self.fits else self.broken(mended(candidate))
            gain = self.pairs.gain(candidate)
            if gain > best_gain:
                best, best_gain = candidate, gain
        self.pairs.add(best)
        return best

    def model(self):
        names = [name for name in AXES["model"] if not (self.light and name in LARGE)]
        return self.random.choices(names, [MODELS[name]["share"] for name in names])[0]

    def candidate(self, model):
        draw = {axis: self.random.choice(words) for axis, words in AXES.items()}
        draw["model"] = model
        # Half of the jobs compute and send float32, where the bounds are the closest.
        if self.random.random() < 0.5:
            draw["precision"] = draw["wire"] = ""
        # Many flags are left out, or no draw would be free of any of them.
        for axis, words in AXES.items():
            if words[0] == "" and self.random.random() < 0.35:
                draw[axis] = ""
        return draw

    def broken(self, draw):
        """With one or two words drawn anew, whatever the rest says."""
        axes = self.random.sample([axis for axis in AXES if axis not in ("model", "batch")],
                                  self.random.choice([1, 2]))
        draw = in_range({**draw, **{axis: self.random.choice(AXES[axis]) for axis in axes}})
        if normalises(draw) and not draw["sync"]:
            draw["plan"] = draw["plan"] and "file"  # norms behind divided layers see all samples, others not
        return with_room(draw)
