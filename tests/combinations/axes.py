"""Everything that can be said of a step, and draws from it that cover all pairs.

A draw is a dictionary: axis -> word. The first word of an axis says nothing: its flags are left out.
"""

import random

# The families. Images are so small that a step takes milliseconds, and so large that batch norms
# still see several values per channel. `heavy` ones have tens of millions of weights and are drawn
# less often.
MODELS = {
    "fashion_cnn": {"image": 16, "channels": 1, "classes": 10},
    "mobilefacenet": {"image": 32, "channels": 3, "classes": 12, "face": True},
    "resnet18": {"image": 48, "channels": 3, "classes": 7},
    "iresnet18": {"image": 32, "channels": 3, "classes": 12, "face": True},
    "alexnet": {"image": 63, "channels": 3, "classes": 10, "dropout": True, "plain": True, "heavy": 4},
    "resnet50": {"image": 48, "channels": 3, "classes": 7, "heavy": 2},
    "vgg16": {"image": 32, "channels": 3, "classes": 10, "dropout": True, "plain": True, "heavy": 12},
    "vgg16_bn": {"image": 32, "channels": 3, "classes": 10, "dropout": True, "heavy": 12},
}

# The devices of each stage, numbered over the whole job.
LAYOUTS = {
    "1": [[0]],
    "2": [[0, 1]],
    "3": [[0, 1, 2]],
    "4": [[0, 1, 2, 3]],
    "1.1": [[0], [1]],
    "2.1": [[0, 1], [2]],
    "1.2": [[0], [1, 2]],
    "2.2": [[0, 1], [2, 3]],
    "3.1": [[0, 1, 2], [3]],
    "1.3": [[0], [1, 2, 3]],
    "1.1.1": [[0], [1], [2]],
    "1.2.1": [[0], [1, 2], [3]],
    "2.1.1": [[0, 1], [2], [3]],
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
    "ranks": ["1", "2"],
    "batch": ["2", "3", "4"],
    "parallel": ["", "data", "model", "hybrid"],
    "schedule": ["", "gpipe", "1f1b-flush", "zero-bubble", "interleaved", "1f1b", "ssp",
                 "2bw"],
    "static": ["", "on", "off"],
    "replicas": ["", "split", "roundrobin"],
    "microbatches": ["", "1", "2", "3", "4"],
    "cut": ["", "weights", "after"],
    "optimizer": ["", "plain", "nesterov", "adamw", "adamw-betas", "lars", "lamb"],
    "decay": ["", "0", "0.01", "0.01-all"],
    "clip": ["", "0.5", "1000"],
    "share": ["", "on"],
    "sync": ["", "on"],
    "precision": ["", "fp16", "bf16", "bf16-storage"],
    "wire": ["", "fp32", "fp16", "bf16"],
    "recompute": ["", "none", "cheap", "all"],
    "scale": ["", "1024", "dynamic", "overflow"],
    "dropout": ["", "off"],
    "smoothing": ["", "0.1"],
    "trained": ["", "late", "middle", "decayed"],
    "rate": ["", "step", "cosine", "polynomial", "warmup"],
    "head": ["", "softmax", "arcface", "cosface", "combined"],
    "head-parallel": ["", "dp", "mp", "pfc", "pfc-all"],
    "head-gradient": ["", "plain"],
    "head-dtype": ["", "bf16"],
    "eval": ["", "end", "every"],
    "data": ["raw", "small", "synthetic"],
    "finite": ["", "on"],
    "resume": ["", "same", "alone", "apart"],
}

DEFAULT = {axis: words[0] for axis, words in AXES.items()}

STALE = ("1f1b", "ssp", "2bw")
SHARE_OF_NONSENSE = 0.1  # of the draws say things that do not fit together, to see them refused


def stages_of(draw):
    return LAYOUTS[draw["layout"]]


def devices_of(draw):
    """How many different devices the job has."""
    return len({device for stage in stages_of(draw) for device in stage})


def turns_of(stages):
    """How many placements take the stages in turn; 0 if they do not."""
    turns = next((i for i in range(1, len(stages)) if stages[i] == stages[0]), len(stages))
    devices = [device for stage in stages[:turns] for device in stage]
    in_turn = len(stages) % turns == 0 and all(
        stage == stages[i % turns] for i, stage in enumerate(stages))
    return turns if in_turn and len(devices) == len(set(devices)) else 0


def mended(draw):
    """The same draw without what is known to say nothing beside the rest of it."""
    draw = dict(draw)
    model = MODELS[draw["model"]]
    stages = stages_of(draw)
    widest = max(len(stage) for stage in stages)
    wanting = {
        "ranks": devices_of(draw) > 1,
        "static": draw["schedule"] == "ssp",
        "cut": len(stages) > 1,
        "schedule": len(stages) > 1,
        "replicas": widest > 1,
        "parallel": widest > 1 and (len(stages) == 1 or draw["parallel"] == "data"),
        "share": widest > 1,
        "sync": widest > 1 and "plain" not in model,
        "dropout": "dropout" in model,
        "head": "face" in model,
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
        draw["eval"] = draw["smoothing"] = ""
        if draw["head"] == "softmax":
            draw["head-gradient"] = ""
    if draw["schedule"] in STALE and len(stages) > 1:
        draw["clip"] = ""  # stages that update by themselves know of no common norm
        if draw["scale"] == "overflow":
            draw["scale"] = "dynamic"  # each stage skips by itself: tests/train/overflow_test.cpp
        if draw["head"] and draw["schedule"] == "2bw":
            draw["schedule"] = "1f1b"
    if "fp16" in (draw["precision"], draw["wire"]) and devices_of(draw) > 1:
        draw["scale"] = "1024"  # what travels in fp16 overflows earlier than what stays
    if draw["head-parallel"].startswith("pfc"):
        draw["microbatches"] = "1"
    if draw["schedule"] != "ssp":
        draw["static"] = ""
    if draw["schedule"] == "interleaved":
        turns = turns_of(stages)
        if not turns or draw["replicas"] == "roundrobin":
            draw["schedule"] = ""
        elif draw["microbatches"] and int(draw["microbatches"]) % turns:
            draw["microbatches"] = ""
    if draw["schedule"] == "2bw":
        draw["microbatches"] = draw["microbatches"] if draw["microbatches"] == "4" else ""
    return with_room(draw)


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


def pairs_of(draw):
    items = sorted(draw.items())
    return {(a, b) for i, a in enumerate(items) for b in items[i + 1:]}


class Sampler:
    """Draws one job after the other, each with as many rarely drawn pairs of words as it can have."""

    def __init__(self, seed, light=False, tries=40):
        self.random = random.Random(seed)
        self.light = light  # without the models of over a hundred million weights
        self.tries = tries
        self.seen = {}

    def draw(self):
        sense = self.random.random() >= SHARE_OF_NONSENSE
        best, best_gain = None, -1.0
        for _ in range(self.tries):
            candidate = self.candidate()
            if self.light and MODELS[candidate["model"]].get("heavy", 1) > 2:
                candidate["schedule"] = ""  # its reference would keep all versions of all weights
            if sense:
                candidate = mended(candidate)
            gain = sum(2.0 ** -self.seen.get(pair, 0) for pair in pairs_of(candidate))
            gain /= 1 + 0.1 * (MODELS[candidate["model"]].get("heavy", 1) - 1)
            if gain > best_gain:
                best, best_gain = candidate, gain
        for pair in pairs_of(best):
            self.seen[pair] = self.seen.get(pair, 0) + 1
        return best

    def candidate(self):
        draw = {axis: self.random.choice(words) for axis, words in AXES.items()}
        # Models by their cost.
        costs = [MODELS[name].get("heavy", 1) for name in AXES["model"]]
        weights = [0 if self.light and cost > 4 else 1 / cost for cost in costs]
        draw["model"] = self.random.choices(AXES["model"], weights)[0]
        # Half of the jobs compute and send float32, where the bounds are the closest.
        if self.random.random() < 0.5:
            draw["precision"] = draw["wire"] = ""
        # Many flags are left out, or no draw would be free of any of them.
        for axis, words in AXES.items():
            if words[0] == "" and self.random.random() < 0.35:
                draw[axis] = ""
        return draw

    def coverage(self):
        """(pairs of words seen, pairs that there are)."""
        axes = sorted(AXES)
        total = sum(len(AXES[a]) * len(AXES[b]) for i, a in enumerate(axes) for b in axes[i + 1:])
        known = [pair for pair in self.seen if all(word in AXES[axis] for axis, word in pair)]
        return len(known), total  # larger batches are no words of the axis
