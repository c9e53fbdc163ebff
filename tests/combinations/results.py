"""What a run leaves behind, and whether two runs left the same."""

import json
import pathlib
import struct

import numpy

TYPES = {"F32": numpy.float32, "F16": numpy.float16, "I64": numpy.int64, "U8": numpy.uint8}


def read_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = data[8 + length + begin:8 + length + end]
        if entry["dtype"] == "BF16":
            values = (numpy.frombuffer(raw, numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
        else:
            values = numpy.frombuffer(raw, TYPES[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"]).astype(numpy.float64)
    return tensors


def write_safetensors(path, tensors):
    header, blobs, offset = {}, [], 0
    for name, values in tensors.items():
        dtype = "U8" if values.dtype == numpy.uint8 else "I64" if values.dtype == numpy.int64 else "F32"
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
        for line in pathlib.Path(metrics).read_text().splitlines():
            entry = json.loads(line)
            if entry["kind"] == "step":
                self.steps[entry["step"]] = entry
            elif entry["kind"] == "evaluation":
                self.evaluations[entry["step"]] = entry
        self.weights, self.states = {}, {}
        shards = {}
        for file in sorted(pathlib.Path(checkpoint).glob("*.safetensors")):
            tensors = read_safetensors(file)
            if file.name == "weights.safetensors":
                self.weights.update(tensors)
            elif file.name == "optimizer.safetensors":
                self.states.update(tensors)
            else:  # centres and their state, in order of their classes
                for name, values in tensors.items():
                    shards.setdefault(name, []).append(values)
        for name, parts in shards.items():
            into = self.weights if name == "head.centres" else self.states
            into[name] = numpy.concatenate(parts)


def distance(a, b):
    return float(numpy.linalg.norm((a - b).ravel()))


class Expected:
    """A reference, and how far rounding carries it.

    `moved` is the same job from weights that differ in their last bit. What rounding does to a job
    that adds up in another order is of that size, times the number of places where it can: each of
    tens of layers, forward and backward. `coarse` is the same job in float32 where the draw is in 16
    bits: what those bits do at all. Tensors are looked at relative to how far training moved them.
    """

    ROUNDING = 50
    PRECISION = 4

    def __init__(self, result, moved, start, coarse=None):
        self.result, self.moved, self.start, self.coarse = result, moved, start, coarse
        self.partial = any("samples" not in entry for entry in result.steps.values())

    def loss_bound(self, kind, step, key="loss"):
        bound = 2e-5 * max(1.0, abs(getattr(self.result, kind)[step][key]))
        for other, factor in ((self.moved, self.ROUNDING), (self.coarse, self.PRECISION)):
            if other is None:
                continue
            known = [abs(getattr(other, kind)[s][key] - getattr(self.result, kind)[s][key])
                     for s in getattr(self.result, kind) if s <= step]
            bound += factor * max(known)
        return bound

    def tensor_bound(self, group, name, spread):
        mine = getattr(self.result, group)
        values = mine[name]
        start = self.start.get(name) if group == "weights" else None
        change = distance(values, start) if start is not None else float(numpy.linalg.norm(values))
        bound = 1e-4 * change + 2.0 ** -22 * float(numpy.linalg.norm(values))
        bound += 1e-5 * spread * values.size ** 0.5
        for other, factor in ((self.moved, self.ROUNDING), (self.coarse, self.PRECISION)):
            if other is not None:
                bound += factor * distance(getattr(other, group)[name], values)
        return bound

    def differences(self, actual):
        """Sentences, the worst first; none if the run is what it should be."""
        faults = []

        def note(ratio, sentence):
            faults.append((ratio, sentence))

        for kind in ("steps", "evaluations"):
            mine, theirs = getattr(self.result, kind), getattr(actual, kind)
            if kind == "evaluations" and self.partial:
                continue
            if set(mine) != set(theirs):
                note(1e9, f"{kind} {sorted(theirs)} instead of {sorted(mine)}")
                continue
            for step, entry in mine.items():
                for key in ("loss", "top1", "top5", "samples", "learning_rate", "loss_scale", "skipped"):
                    if self.partial and key not in entry:
                        continue
                    if (key in entry) != (key in theirs[step]):
                        note(1e6, f"{kind} {step}: {key} is there in one of the two only")
                        continue
                    if key not in entry:
                        continue
                    off = abs(theirs[step][key] - entry[key])
                    if key == "loss":
                        bound = self.loss_bound(kind, step)
                    elif key in ("top1", "top5"):
                        # A sample more or less on either side of a tie that rounding decides.
                        samples = entry["samples"]
                        bound = self.loss_bound(kind, step, key) + (1.5 / samples if step > 1 else 0)
                    elif key == "learning_rate":
                        bound = 1e-9
                    else:
                        bound = 0
                    if not off <= bound:
                        note(off / (bound or 1e-9), f"{kind} {step}: {key} {theirs[step][key]:.7g} "
                             f"instead of {entry[key]:.7g} (allowed {bound:.2g})")
        for group in ("weights", "states"):
            mine, theirs = getattr(self.result, group), getattr(actual, group)
            if set(mine) != set(theirs):
                odd = sorted(set(mine) ^ set(theirs))
                note(1e9, f"{group}: {', '.join(odd[:4])} in one of the two only")
                continue
            moves = [distance(values, self.start.get(name, 0 * values)) / values.size ** 0.5
                     for name, values in mine.items() if not name.endswith(("running_mean", "running_var"))]
            spread = float(numpy.median(moves)) if moves else 0.0
            for name, values in mine.items():
                if theirs[name].shape != values.shape:
                    note(1e9, f"{name}: shape {theirs[name].shape} instead of {values.shape}")
                    continue
                off, bound = distance(theirs[name], values), self.tensor_bound(group, name, spread)
                if not off <= bound:
                    note(off / (bound or 1e-30), f"{name}: off by {off:.3g} of "
                         f"{numpy.linalg.norm(values):.3g} (allowed {bound:.2g})")
        return [sentence for _, sentence in sorted(faults, key=lambda fault: -fault[0])]
