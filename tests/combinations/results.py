"""What a run leaves behind, and whether two runs left the same."""

import functools
import json
import mmap
import pathlib
import struct

import numpy

TYPES = {"F32": numpy.float32, "F16": numpy.float16, "I64": numpy.int64, "I32": numpy.int32, "U8": numpy.uint8}


def read_safetensors(path):
    """Tensors by name, in memory of the file; it may be deleted while they are in use."""
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        kind = numpy.dtype(numpy.uint16 if entry["dtype"] == "BF16" else TYPES[entry["dtype"]])
        values = numpy.frombuffer(data, kind, (end - begin) // kind.itemsize, 8 + size + begin)
        if entry["dtype"] == "BF16":
            values = (values.astype(numpy.uint32) << 16).view(numpy.float32)
        elif entry["dtype"] == "F16":
            values = values.astype(numpy.float32)  # the plain model goes on from it
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def write_safetensors(path, tensors):
    header, blobs, offset = {}, [], 0
    for name, values in tensors.items():
        known = {numpy.dtype(kind): name for name, kind in TYPES.items()}
        dtype = known.get(values.dtype, "F32")
        blob = numpy.ascontiguousarray(values, TYPES[dtype]).tobytes()
        header[name] = {"dtype": dtype, "shape": list(values.shape),
                        "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for blob in blobs:
            file.write(blob)


class Result:
    """Losses and scores of each step and evaluation, and every tensor of the last checkpoint."""

    def __init__(self, metrics, checkpoint):
        self.steps, self.evaluations = {}, {}
        for line in pathlib.Path(metrics).read_text().splitlines() if metrics else []:
            entry = json.loads(line)
            if entry["kind"] == "step":
                self.steps[entry["step"]] = entry
            elif entry["kind"] == "evaluation":
                self.evaluations[entry["step"]] = entry
        self.weights, self.states, self.averages = {}, {}, {}
        shards = {}
        for file in sorted(pathlib.Path(checkpoint).glob("*.safetensors")):
            tensors = read_safetensors(file)
            if file.name == "weights.safetensors":
                self.weights.update(tensors)
            elif file.name == "optimizer.safetensors":
                self.states.update(tensors)
            elif file.name == "average.safetensors":
                self.averages.update(tensors)
            else:  # centres and their state, in order of their classes
                for name, values in tensors.items():
                    shards.setdefault(name, []).append(values)
        for name, parts in shards.items():
            into = self.weights if name == "head.centres" else self.states
            into[name] = numpy.concatenate(parts)

    def bytes(self):
        return sum(values.nbytes for group in (self.weights, self.states, self.averages)
                   for values in group.values())

    def forget(self, last):
        """The steps up to this one."""
        self.steps = {step: entry for step, entry in self.steps.items() if step > last}
        self.evaluations = {step: entry for step, entry in self.evaluations.items() if step > last}


def length(values):
    """In the precision of the values: what is looked at is whole percents of it."""
    values = numpy.ravel(values if values.dtype.kind == "f" else values.astype(numpy.float64))
    largest = float(numpy.max(numpy.abs(values), initial=0))
    if not 0 < largest < numpy.inf:
        return largest
    if not 1e-15 < largest < 1e15:
        values = values.astype(numpy.float64)  # squares would leave the range
    pieces = (values[begin:begin + 65536] for begin in range(0, values.size, 65536))
    return sum(float(numpy.dot(piece, piece)) for piece in pieces) ** 0.5


def distance(a, b):
    return length(numpy.subtract(a, b, dtype=numpy.result_type(a, b, numpy.float32)))


def is_statistic(name):
    return name.endswith(("running_mean", "running_var"))


def kind_of(group, name):
    return name.rsplit(".", 1)[-1] if group == "states" else group


SCORES = ("loss", "top1", "top5", "recall", "auc", "samples", "pairs", "learning_rate", "loss_scale", "skipped")
FAR = 1e9  # what no rounding explains


def ratio(off, bound):
    return min(off / bound, FAR / 2) if bound > 0 else FAR / 2


def auc_bound(bit):
    """After four steps the embeddings of two images are apart by 1e-11, squared, a tenth of which is what float32
    rounds: a few pairs in a hundred change places, and with fewer bits any."""
    return 0.025 if bit < 1e-6 else 1


class Other:
    """A run beside the reference, from weights of its own, and how many times as far as it is from
    the reference a draw may be. Of several of one kind the one that is the furthest counts."""

    def __init__(self, kind, result, start, factor):
        self.kind, self.result, self.start, self.factor = kind, result, start, factor


def sum_of_largest(bounds):
    """Over kinds; bounds: (kind, bound)."""
    return sum(max(bound for other, bound in bounds if other == kind) for kind in {kind for kind, _ in bounds})


class Expected:
    """A reference, and how far rounding carries it; docs/testing.md derives the factors.

    `others` make runs of the same job with other rounding; each is made when what is known so far does
    not allow for a difference. Weights are looked at by how far training moved them: the difference
    between the starts of two runs is no difference between the runs.
    """

    def __init__(self, result, start, others, bit):
        self.result, self.start, self.to_make, self.others = result, start, list(others), []
        self.own_bounds = {}
        self.bit = bit  # the last one of the coarsest numbers in use
        self.partial = any("samples" not in entry for entry in result.steps.values())

    def unmoved(self, wide):
        """Sentences about weights that training in 16 bits leaves where they were and float32, `wide`,
        does not."""
        faults = []
        moves = {name: [length(self.change(result, self.start, "weights", name)) / values.size ** 0.5
                        for result in (self.result, wide)]
                 for name, values in self.result.weights.items() if not is_statistic(name)}
        moves.pop("head.curriculum", None)  # a mean of cosines of either sign, of which little is left
        if "head.centres" in moves and self.rounds_few("head.centres", moves["head.centres"][1]):
            del moves["head.centres"]
        largest = max(move for _, move in moves.values())
        for name, (own, move) in moves.items():
            if move > 0.05 * largest and own < 0.5 * move:
                faults.append(f"{name}: the reference moves by {own:.2g} in 16 bits, by {move:.2g} in float32")
        return faults

    def rounds_few(self, name, move):
        """Whether of numbers that are rounded at random, and ought to move by so much each, no more than a
        few come out as others."""
        values = self.result.weights[name]
        return move * values.size < 30 * self.bit * length(values) / values.size ** 0.5

    def loss_bound(self, kind, step, key="loss"):
        mine = getattr(self.result, kind)
        bound, bounds = max(2e-5, self.bit / 4) * max(1.0, abs(mine[step][key])), []
        for other in self.others:
            theirs = getattr(other.result, kind)
            bounds.append((other.kind, other.factor * max(abs(theirs[s][key] - mine[s][key])
                                                          for s in mine if s <= step)))
        return bound + sum_of_largest(bounds)

    def change(self, result, start, group, name):
        values = getattr(result, group)[name]
        return values - start[name] if group != "states" and name in start else values

    @functools.cached_property
    def largest(self):
        """Change of a number, for weights and each kind of state."""
        largest = {}
        for group in ("weights", "states", "averages"):
            kinds = largest.setdefault(group, {})
            for name, values in getattr(self.result, group).items():
                if not is_statistic(name):
                    move = length(self.change(self.result, self.start, group, name)) / values.size ** 0.5
                    kinds[kind_of(group, name)] = max(kinds.get(kind_of(group, name), 0.0), move)
        return largest

    @functools.cached_property
    def largest_moment(self):
        return max(length(values) / values.size ** 0.5 for name, values in self.result.states.items()
                   if name.endswith(".first_moment"))

    def own_bound(self, group, name):
        """What any run may be off by, asked of a tensor once."""
        if (group, name) not in self.own_bounds:
            self.own_bounds[group, name] = self.make_own_bound(group, name)
        return self.own_bounds[group, name]

    def make_own_bound(self, group, name):
        largest = self.largest[group].get(kind_of(group, name), 0.0)
        values = getattr(self.result, group)[name]
        change = self.change(self.result, self.start, group, name)
        bound = 1e-4 * length(change) + 2.0 ** -22 * length(values)
        # Sums that cancel, as the gradient of a bias in front of a batch norm: only the rounding
        # of their terms is left, which are as large as those that do not cancel.
        share = max(1e-5, self.bit)
        # AdamW moves a weight as far for a gradient of mere rounding as for any other: one or two of
        # every tensor, and all of those whose gradient cancels.
        moment = self.result.states.get(name + ".first_moment") if group != "states" else None
        if moment is not None:
            bound += 1.5 * length(change) / values.size ** 0.5
            if length(moment) <= share * self.largest_moment * moment.size ** 0.5:
                share = 2
        bound += share * largest * values.size ** 0.5
        if name.endswith("running_mean"):
            variance = getattr(self.result, group)[name.removesuffix("mean") + "var"]
            bound += max(1e-6, self.bit) * float(variance.sum()) ** 0.5
            # A bias in front of this norm has a gradient that cancels; where what is left of it is the
            # rounding of 16 bits, such an optimizer moves it as far as any other, and the mean with it.
            if self.bit > 1e-6 and any(state.endswith(".first_moment") for state in self.result.states):
                bound += largest * float(variance.sum()) ** 0.5
        if name.endswith("running_var"):
            bound += self.bit / 4 * length(values)  # of numbers that are rounded to a last bit
        return bound

    def others_bound(self, group, name):
        change = self.change(self.result, self.start, group, name)
        bounds = [(other.kind, other.factor * distance(self.change(other.result, other.start, group, name), change))
                  for other in self.others]
        return sum_of_largest(bounds)

    def differences(self, actual):
        """Sentences, the worst first; none if the run is what it should be."""
        faults = self.differences_so_far(actual)
        while faults and faults[0][0] < FAR and self.to_make:
            self.others.append(self.to_make.pop(0)())
            faults = self.differences_so_far(actual)
        return [sentence for _, sentence in faults]

    def differences_so_far(self, actual):
        faults = []
        for kind in ("steps", "evaluations"):
            faults += self.differences_of_scores(kind, getattr(self.result, kind), getattr(actual, kind))
        for group in ("weights", "states", "averages"):
            faults += self.differences_of_tensors(group, getattr(self.result, group), getattr(actual, group))
        return sorted(faults, key=lambda fault: -fault[0])

    def differences_of_scores(self, kind, mine, theirs):
        if kind == "evaluations" and self.partial:
            return []
        if set(mine) != set(theirs):
            return [(FAR, f"{kind} {sorted(theirs)} instead of {sorted(mine)}")]
        faults = []
        for step, entry in mine.items():
            for key in SCORES:
                if self.partial and key not in entry:
                    continue
                if (key in entry) != (key in theirs[step]):
                    faults.append((FAR, f"{kind} {step}: {key} is there in one of the two only"))
                if key not in entry or key not in theirs[step]:
                    continue
                off, bound = abs(theirs[step][key] - entry[key]), self.score_bound(kind, step, key)
                if not off <= bound:
                    faults.append((ratio(off, bound), f"{kind} {step}: {key} {theirs[step][key]:.7g} "
                                   f"instead of {entry[key]:.7g} (allowed {bound:.2g})"))
        return faults

    def score_bound(self, kind, step, key):
        if key == "loss":
            return self.loss_bound(kind, step)
        if key == "recall":  # the same, of a class that may have few samples
            return self.loss_bound(kind, step, key) + 0.1
        if key in ("top1", "top5"):
            # A sample more or less on either side of a tie that rounding decides.
            samples = getattr(self.result, kind)[step]["samples"]
            return self.loss_bound(kind, step, key) + (1.5 / samples if step > 1 else 0)
        if key == "auc":
            return self.loss_bound(kind, step, key) + auc_bound(self.bit)
        return 1e-9 if key == "learning_rate" else 0

    def differences_of_tensors(self, group, mine, theirs):
        if set(mine) != set(theirs):
            odd = sorted(set(mine) ^ set(theirs))
            return [(FAR, f"{group}: {', '.join(odd[:4])} in one of the two only")]
        faults = []
        for name, values in mine.items():
            if theirs[name].shape != values.shape:
                faults.append((FAR, f"{name}: shape {theirs[name].shape} instead of {values.shape}"))
                continue
            off = distance(theirs[name], values)
            bound = self.own_bound(group, name)
            if not off <= bound:
                bound += self.others_bound(group, name)
            if not off <= bound:
                faults.append((ratio(off, bound), f"{name}: off by {off:.3g} of "
                               f"{length(values):.3g} (allowed {bound:.2g})"))
        return faults
