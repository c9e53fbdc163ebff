#!/usr/bin/python3
"""Margin heads against float64 autograd of their definition and PyTorch's own optimizers.

    margin_heads.py HEAD_STEPS [--case WORDS]

The logit of a class is scale * cos(angle) of embedding and centre, that of a sample's own class
scale * (cos(m1 * angle + m2) - m3), and the loss is the mean cross-entropy over the classes in use.
With the plain gradient the own class's logit has the gradient of its cosine. The optimizer sees one
dense parameter; classes that a step does not use have a gradient of zero.

AdaFace, MagFace and CurricularFace are written down from their papers; filtered classes (Partial FC's
inter-class filtering) have a logit of zero. "nearest" is by the logits of other classes as they count.

Twenty steps. Samples lie at every angle from their own centres, from nearly 0 to nearly pi, and
embeddings and centres are of all lengths. Compared are the losses (1e-3), each sample's gradient of
its embedding (1e-3), how many samples are nearest to their own centre, how far each centre and all
together have moved (1 %), and their optimizer state.
"""

import math
import os
import subprocess
import sys
import tempfile

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))

import safetensors_file  # noqa: E402

STEPS, BATCH, DIMENSION, CLASSES = 20, 24, 40, 300
MOMENTUM, DECAY, RATE = 0.9, 5e-4, 0.02
LOSS_TOLERANCE, GRADIENT_TOLERANCE, CENTRE_TOLERANCE = 1e-3, 1e-3, 1e-2
LAZY, NONE, FROZEN = 0, 1, 2
OPTIMIZERS = {"sgd": 0, "adamw": 1, "lars": 2}

MARGINS = {"softmax": (1.0, 0.0, 0.0), "arcface": (1.0, 0.5, 0.0), "cosface": (1.0, 0.0, 0.4),
           "combined": (1.0, 0.3, 0.2), "all three": (1.35, 0.1, 0.05),
           "adaface": (1.0, 0.4, 0.0), "magface": (1.0, 0.45, 0.0), "curricularface": (1.0, 0.5, 0.0)}
KINDS = {"adaface": (1, 0.333), "magface": (2, 0.8), "curricularface": (3, 0.0)}


class Case:
    def __init__(self, margin, exact=True, sample_rate=1.0, head_momentum=LAZY, optimizer="sgd",
                 nesterov=False, momentum=MOMENTUM, decay=DECAY, clip=0.0, skip=-1, filtered=0.0,
                 head_rate=1.0, backbone=False):
        self.kind, self.strength = KINDS.get(margin, (0, 0.0))
        self.filter, self.head_rate, self.backbone = filtered, head_rate, backbone
        self.margin, self.exact, self.sample_rate = MARGINS[margin], exact, sample_rate
        self.head_momentum, self.optimizer, self.nesterov = head_momentum, optimizer, nesterov
        self.momentum, self.decay, self.clip, self.skip = momentum, decay, clip, skip
        self.name = f"{margin}, {'exact' if exact else 'plain'}, rate {sample_rate}, {optimizer}"
        for word, holds in (("nesterov", nesterov), ("no momentum kept", head_momentum == NONE),
                            ("frozen", head_momentum == FROZEN), ("plain sgd", momentum == 0),
                            (f"decay {decay}", decay != DECAY), ("clipped", clip > 0),
                            ("a skipped step", skip >= 0), (f"filter {filtered}", filtered > 0),
                            (f"rate of the head {head_rate}", head_rate != 1),
                            ("the backbone alone", backbone)):
            self.name += f", {word}" if holds else ""

    def metadata(self):
        values = {"m1": self.margin[0], "m2": self.margin[1], "m3": self.margin[2], "scale": 64,
                  "exact": int(self.exact), "sample_rate": self.sample_rate,
                  "head_momentum": self.head_momentum, "optimizer": OPTIMIZERS[self.optimizer],
                  "nesterov": int(self.nesterov), "momentum": self.momentum,
                  "weight_decay": self.decay, "clip_norm": self.clip,
                  "check_overflow": int(self.skip >= 0), "skip": self.skip, "kind": self.kind,
                  "strength": self.strength, "filter": self.filter, "head_rate": self.head_rate,
                  "clip_backbone": int(self.backbone)}
        return {key: repr(value) for key, value in values.items()}


def cases():
    for margin in MARGINS:
        for exact in (True, False):
            for rate in (1.0, 0.1):
                if margin != "curricularface":
                    yield Case(margin, exact, rate)
                elif rate == 1:
                    # Its weights grow with the cosine, so that each step makes more of what rounding does.
                    yield Case(margin, exact, rate, head_rate=0.5)
    for rate in (1.0, 0.1):
        yield Case("arcface", sample_rate=rate, nesterov=True)
        yield Case("cosface", sample_rate=rate, momentum=0.0, decay=0.05)
        yield Case("cosface", sample_rate=rate, optimizer="adamw", decay=0.05)
        yield Case("arcface", sample_rate=rate, optimizer="lars", decay=0.05)
        yield Case("arcface", sample_rate=rate, clip=5.0)
        yield Case("cosface", sample_rate=rate, skip=7)
        yield Case("cosface", sample_rate=rate, optimizer="adamw", skip=7)
        yield Case("cosface", sample_rate=rate, filtered=0.1)
        yield Case("arcface", sample_rate=rate, head_rate=0.5)
        yield Case("arcface", sample_rate=rate, clip=5.0, backbone=True)
        yield Case("magface", sample_rate=rate, clip=5.0)
        yield Case("adaface", sample_rate=rate, optimizer="adamw", decay=0.05)
    yield Case("arcface", clip=5.0, skip=7, backbone=True)  # the step of the centres waits, and is not clipped
    yield Case("curricularface", clip=5.0)
    yield Case("cosface", sample_rate=0.1, decay=0.05)
    yield Case("cosface", sample_rate=0.1, head_momentum=NONE)
    yield Case("arcface", sample_rate=0.1, head_momentum=FROZEN)
    yield Case("cosface", sample_rate=0.02, clip=5.0)


class History:
    """What heads that follow the training know of earlier steps."""

    def __init__(self):
        self.mean, self.deviation, self.t = 20.0, 100.0, 0.0


def sample_margins(case, lengths, history):
    """m2 and m3 of each sample and what its loss has besides, by the papers of AdaFace (h = 0.333; lengths
    against their mean and deviation so far) and MagFace (from 10 to 110)."""
    _, m2, m3 = case.margin
    if case.kind == 1:
        lengths = lengths.detach().clamp(0.001, 100)
        history.mean = 0.01 * lengths.mean() + 0.99 * history.mean
        history.deviation = 0.01 * lengths.std() + 0.99 * history.deviation
        z = (case.strength * (lengths - history.mean) / (history.deviation + 0.001)).clamp(-1, 1)
        return -m2 * z, m2 + m2 * z, 0.0
    if case.kind == 2:
        a = lengths.clamp(10, 110)
        return (case.strength - m2) / 100 * (a - 10) + m2, m3, 35 * (a / 110 ** 2 + 1 / a).mean()
    return m2, m3, 0.0


def cross_entropy(case, embeddings, centres, labels, used, history):
    """From the definition; `used` are the numbers of the classes in use."""
    lengths = embeddings.norm(dim=1, keepdim=True)
    units = torch.nn.functional.normalize(embeddings)
    cosines = units @ torch.nn.functional.normalize(centres[used]).T
    place = torch.searchsorted(used, labels)
    own = cosines.gather(1, place[:, None]).clamp(-1, 1)
    m2, m3, penalty = sample_margins(case, lengths, history)
    changed = torch.cos(case.margin[0] * torch.acos(own) + m2) - m3
    if not case.exact:
        # The margin of MagFace is not plain: its own gradient stays.
        fixed = torch.cos(case.margin[0] * torch.acos(own.detach()) + m2) - m3
        changed = own + (fixed - own.detach())
    others = cosines
    if case.filter:
        others = torch.where(cosines > case.filter, torch.zeros_like(cosines), cosines)
    if case.kind == 3:
        history.t = 0.01 * own.mean().detach() + 0.99 * history.t
        target = torch.cos(torch.acos(own) + m2).detach()
        others = torch.where(cosines > target, cosines * (history.t + cosines), cosines)
    loss = torch.nn.functional.cross_entropy(64 * others.scatter(1, place[:, None], changed), place)
    hits = (others.scatter(1, place[:, None], own).argmax(1) == place).sum()
    return loss + penalty, int(hits)


class Dense:
    """One dense parameter and its optimizer, in double."""

    def __init__(self, case, centres):
        self.case = case
        self.centres = torch.nn.Parameter(centres.double().clone())
        none = case.sample_rate < 1 and case.head_momentum == NONE
        momentum = 0.0 if none else case.momentum
        self.factor = case.head_rate * (1 / (1 - case.momentum) if none else 1.0)
        if case.optimizer == "adamw":
            self.optimizer = torch.optim.AdamW([self.centres], weight_decay=case.decay)
        else:
            self.optimizer = torch.optim.SGD([self.centres], lr=1.0, momentum=momentum,
                                             weight_decay=case.decay, nesterov=case.nesterov)

    def step(self, rate, used, gradient):
        self.centres.grad = gradient
        for group in self.optimizer.param_groups:
            group["lr"] = rate * self.factor
        before = [self.centres.detach().clone()] + [value.clone() for value in self.states()]
        before += [torch.zeros_like(self.centres)] * (3 - len(before))  # states that are new
        self.optimizer.step()
        if self.case.sample_rate == 1 or self.case.head_momentum == LAZY:
            return
        waiting = torch.ones(len(self.centres), dtype=torch.bool)
        waiting[used] = False
        for tensor, old in zip([self.centres.data] + self.states(), before):
            tensor[waiting] = old[waiting]

    def states(self):
        state = self.optimizer.state.get(self.centres, {})
        names = ("exp_avg", "exp_avg_sq") if self.case.optimizer == "adamw" else ("momentum_buffer",)
        return [state[name] for name in names if state.get(name) is not None]


ANGLES = [1e-4, 1e-3, 0.01, 0.05, 0.3, 1.0, 1.5, 2.0, 2.8, 3.0, math.pi - 0.05, math.pi - 0.01,
          math.pi - 1e-3, math.pi - 1e-4]


def embeddings_at(generator, centres, labels, step):
    """Embeddings of all lengths, at given angles from the samples' own centres. Once centres have
    moved, those of the program are the same to about five digits, so that much smaller angles would
    compare rounding."""
    rows = []
    for number, label in enumerate(labels):
        unit = torch.nn.functional.normalize(centres[label], dim=0)
        other = torch.randn(DIMENSION, generator=generator, dtype=torch.double)
        other = torch.nn.functional.normalize(other - (other @ unit) * unit, dim=0)
        angles = ANGLES if step == 0 else ANGLES[3:-3]
        angle = angles[(number + step) % len(angles)]
        length = 10 ** (6 * torch.rand((), generator=generator).item() - 3)
        rows.append(length * (math.cos(angle) * unit + math.sin(angle) * other))
    return torch.stack(rows).float()


class Checks:
    def __init__(self, name):
        self.name, self.worst, self.failures = name, {}, []

    def add(self, what, error, tolerance):
        self.worst[what] = max(self.worst.get(what, 0.0), error)
        if not error <= tolerance:
            self.failures.append(f"{what} differs by {error:.2e}")

    def finish(self):
        words = ", ".join(f"{what} {error:.1e}" for what, error in self.worst.items())
        print(f"{self.name}: {words}", flush=True)
        for failure in self.failures[:6]:
            print(f"  WRONG: {failure}", flush=True)
        return not self.failures


def run_program(program, directory, case, inputs):
    source, target = os.path.join(directory, "in"), os.path.join(directory, "out")
    safetensors_file.save(source, {key: numpy.asarray(value) for key, value in inputs.items()},
                          case.metadata())
    subprocess.run([program, source, target], check=True, timeout=120)
    tensors = safetensors_file.load(target)[0]
    return {key: torch.from_numpy(numpy.array(value)).double() for key, value in tensors.items()}


def compare(program, directory, case, seed):
    generator = torch.Generator().manual_seed(seed)
    lengths = 10 ** (2 * torch.rand(CLASSES, 1, generator=generator) - 1.5)
    start = torch.nn.functional.normalize(
        torch.randn(CLASSES, DIMENSION, generator=generator)) * lengths
    labels = torch.randint(CLASSES, (STEPS, BATCH), generator=generator)
    rates = RATE * (0.05 if case.optimizer == "adamw" else 1) * (
        0.5 + 0.5 * torch.cos(math.pi * torch.arange(STEPS) / STEPS))
    embeddings = torch.ones(STEPS, BATCH, DIMENSION)
    inputs = {"embeddings": embeddings, "labels": labels.int(), "centres": start, "rates": rates}
    samples = run_program(program, directory, case, inputs)["used"]

    dense, history = Dense(case, start), History()
    expected, clipped = [], 0
    for step in range(STEPS):
        embeddings[step] = embeddings_at(generator, dense.centres.detach(), labels[step], step)
        if step == case.skip:
            embeddings[step, 0, 0] = math.inf
            expected.append(None)
            continue
        rows = embeddings[step].double().requires_grad_()
        used = samples[step].nonzero().flatten()
        loss, hits = cross_entropy(case, rows, dense.centres, labels[step], used, history)
        of_rows, of_centres = torch.autograd.grad(loss, [rows, dense.centres])
        expected.append((loss.item(), hits, of_rows))
        if case.clip:
            squares = 0 if case.backbone else of_centres.norm() ** 2
            scale = min(1.0, case.clip / (math.sqrt(of_rows.norm() ** 2 + squares) + 1e-6))
            clipped += scale < 1
            of_centres = of_centres if case.backbone else of_centres * scale
            expected[-1] = (loss.item(), hits, of_rows * scale)
        dense.step(float(rates[step]), used, of_centres)

    own = run_program(program, directory, case, inputs)
    checks = Checks(case.name)
    for step, values in enumerate(expected):
        if values is None:
            continue
        loss, hits, of_rows = values
        checks.add("loss", abs(own["losses"][step].item() - loss) / max(loss, 1e-30), LOSS_TOLERANCE)
        checks.add("top1", abs(own["top1"][step].item() - hits), 0)
        # As of embeddings of length one, so that short ones do not hide the others.
        lengths = embeddings[step].double().norm(dim=1, keepdim=True)
        of_units, apart = of_rows * lengths, (own["gradients"][step] - of_rows) * lengths
        checks.add("gradients", (apart.norm() / of_units.norm()).item(), GRADIENT_TOLERANCE)
        if step > 0:
            continue
        # Centres are the same to the bit, so that each sample can be asked for by itself. The
        # reference knows a probability close to 1 to about 1e-16.
        sizes = of_units.norm(dim=1).clamp(min=1e-10 * 64 / BATCH)
        checks.add("one gradient", (apart.norm(dim=1) / sizes).max().item(), GRADIENT_TOLERANCE)
    before = start.double()
    change = dense.centres.detach() - before
    error = (own["head.centres"] - before - change).norm(dim=1)
    checks.add("centres", (error.norm() / change.norm()).item(), CENTRE_TOLERANCE)
    # Centres are float32: what they lose by rounding in each step is no error.
    rounding = STEPS * 1.2e-7 * torch.maximum(before.norm(dim=1), dense.centres.norm(dim=1).detach())
    checks.add("one centre", (error / (change.norm(dim=1) + rounding / CENTRE_TOLERANCE)).max().item(),
               CENTRE_TOLERANCE)
    names = ("first_moment", "second_moment") if case.optimizer == "adamw" else ("momentum",)
    for name, state in zip(names, dense.states()):
        checks.add(name, ((own[f"head.centres.{name}"] - state).norm() / state.norm()).item(),
                   CENTRE_TOLERANCE)
    if not torch.isfinite(change).all() or change.norm() == 0:
        checks.failures.append("the reference has nothing to compare")
    if case.clip and not 0 < clipped:
        checks.failures.append("no step was clipped, which shows little")
    if case.sample_rate < 1 and samples.sum(1).max() == CLASSES:
        checks.failures.append("the sample has every class")
    return checks.finish()


def main():
    torch.set_num_threads(1)
    program = os.path.abspath(sys.argv[1])
    wanted = sys.argv[3] if len(sys.argv) > 3 and sys.argv[2] == "--case" else ""
    with tempfile.TemporaryDirectory(prefix="millrace-heads-") as directory:
        chosen = [case for case in cases() if wanted in case.name]
        good = [compare(program, directory, case, seed) for seed, case in enumerate(chosen)]
    if not good:
        sys.exit(f"no case has '{wanted}' in its name")
    print(f"{sum(good)} of {len(good)} as they should be")
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
