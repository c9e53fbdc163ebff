#!/usr/bin/python3
"""Face networks with margin heads: five steps of the program against PyTorch from common weights.

    insightface.py MILLRACE [--image 112] [--seed 1] [--rate 0.02 0.1] [--case WORDS] [--quick]

PyTorch trains as InsightFace's recipes do: embeddings and centres are normalised, the classes below
change the cosine of a sample's own class, and SGD with momentum 0.9 and weight decay 5e-4 steps
everything, the centres as one dense parameter. The program is given the same weights, centres and
images as files; the images are one batch, so that their order does not matter. PyTorch computes
mobilefacenet in double: its norms over few values magnify rounding. Compared are the losses (1 %),
and how far the centres (2 %) and the whole backbone (5 %) have moved.

At a rate of 0.1 these bounds are closer than weights of float32 can tell: mobilefacenet decides at PReLUs
whose input is 0 but for rounding, one decision among millions changes gradients by a thousandth, and each
step makes ten times as much of that. In double, too, such a job ends elsewhere if the weights that it begins
with are moved by their last bit of float32. So each step of mobilefacenet is also compared by itself, from
what the program had before it (single_steps.py), much closer than that; and all five together may, above a
rate of 0.02, be off by twice the furthest of a few runs from moved weights, which are printed: their
arithmetic is exact, that of the program rounds everything as much once more. What PyTorch's float32 is off
by plays no part.
"""

import argparse
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))

import face_models  # noqa: E402
import safetensors_file  # noqa: E402
import single_steps  # noqa: E402

STEPS, BATCH, CLASSES, SCALE = 5, 8, 24, 64.0
TOLERANCES = {"losses": 1e-2, "centres": 2e-2, "backbone": 5e-2}
CALM = 0.02  # the highest rate at which these hold whatever the network
SAMPLES, TIMES = 3, 2  # of weights moved by a bit


class ArcFace(torch.nn.Module):
    """Adds to the angle, which is taken and put back without telling autograd."""

    def __init__(self, margin=0.5):
        super().__init__()
        self.margin = margin

    def forward(self, cosines, labels):
        rows = torch.arange(len(labels))
        with torch.no_grad():
            angles = torch.acos(cosines[rows, labels].clamp(-1, 1)) + self.margin
            shift = torch.zeros_like(cosines)
            shift[rows, labels] = torch.cos(angles) - cosines[rows, labels]
        return (cosines + shift) * SCALE


class ExactArcFace(ArcFace):
    """The same with the gradient of its formula."""

    def forward(self, cosines, labels):
        own = cosines.gather(1, labels[:, None]).clamp(-1, 1)
        return cosines.scatter(1, labels[:, None], torch.cos(torch.acos(own) + self.margin)) * SCALE


class CosFace(torch.nn.Module):
    """Subtracts from the cosine."""

    def __init__(self, margin=0.4):
        super().__init__()
        self.margin = margin

    def forward(self, cosines, labels):
        shift = torch.zeros_like(cosines)
        shift[torch.arange(len(labels)), labels] = self.margin
        return (cosines - shift) * SCALE


CASES = {
    "iresnet18, arcface, plain": ("iresnet18", ArcFace(),
                                  ["--head", "arcface", "--head-gradient", "plain"]),
    "iresnet18, arcface, exact": ("iresnet18", ExactArcFace(), ["--head", "arcface"]),
    "iresnet18, cosface": ("iresnet18", CosFace(), ["--head", "cosface"]),
    "iresnet18, cosface, plain": ("iresnet18", CosFace(),
                                  ["--head", "cosface", "--head-gradient", "plain"]),
    "mobilefacenet, arcface, plain": ("mobilefacenet", ArcFace(),
                                      ["--head", "arcface", "--head-gradient", "plain"]),
    "mobilefacenet, arcface, exact": ("mobilefacenet", ExactArcFace(), ["--head", "arcface"]),
    "mobilefacenet, cosface": ("mobilefacenet", CosFace(0.35),
                               ["--head", "cosface", "--margin", "0.35"]),
    "mobilefacenet, cosface, plain": ("mobilefacenet", CosFace(),
                                      ["--head", "cosface", "--head-gradient", "plain"]),
    "mobilefacenet, cosface, mp on two devices": (
        "mobilefacenet", CosFace(),
        ["--head", "cosface", "--head-parallel", "mp", "--devices", "2", "--sync-batch-norm"]),
    "mobilefacenet, arcface, pfc of all on two devices": (
        "mobilefacenet", ExactArcFace(),
        ["--head", "arcface", "--head-parallel", "pfc", "--sample-rate", "1", "--devices", "2",
         "--sync-batch-norm"]),
}


QUICK = ["iresnet18, arcface, plain", "iresnet18, cosface", "mobilefacenet, arcface, exact",
         "mobilefacenet, cosface, mp on two devices"]


def loss_function(margin, pixels, labels, kind):
    images = (pixels.permute(0, 3, 1, 2).to(kind) / 255 - 0.5) / 0.5
    normalize = torch.nn.functional.normalize

    def loss_of(model, centres):
        cosines = normalize(model(images)) @ normalize(centres).T
        return torch.nn.functional.cross_entropy(margin(cosines, labels), labels)

    return loss_of


def train_here(network, image, start, kind, margin, pixels, labels, rate):
    """The losses in PyTorch, and what the weights have become."""
    model = face_models.build(network, image)
    model.load_state_dict({key: value for key, value in start.items() if key != "head.centres"}, strict=False)
    model = model.to(kind).train()
    loss_of = loss_function(margin, pixels, labels, kind)
    centres = torch.nn.Parameter(start["head.centres"].to(kind, copy=True))
    everything = [weight for weight in model.parameters() if weight.requires_grad] + [centres]
    optimizer = torch.optim.SGD(everything, lr=rate, momentum=0.9, weight_decay=5e-4)
    losses = []
    for _ in range(STEPS):
        loss = loss_of(model, centres)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {**model.state_dict(), "head.centres": centres.detach()}


def train_there(program, directory, flags, image, rate):
    def path(name):
        return os.path.join(directory, name)

    devices = int(flags[flags.index("--devices") + 1]) if "--devices" in flags else 1
    command = [program, "train", "--quiet", "--data", "raw:" + path("images"), "--image", image,
               "--classes", CLASSES, "--batch", BATCH // devices, "--steps", STEPS, "--lr", rate,
               "--momentum", 0.9, "--weight-decay", 5e-4, "--decay-all", "--dropout", "off",
               "--augment", "none", "--conv-algo", "direct", "--threads-per-device", 1,
               "--load-weights", path("start"), "--save-weights", path("end"),
               "--checkpoint", path("steps"), "--checkpoint-every", 1, "--keep", STEPS,
               "--metrics", path("metrics"), *flags]
    command = [str(word) for word in command]
    shutil.rmtree(path("steps"), ignore_errors=True)
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}: {done.stderr}")
    with open(path("metrics"), encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    losses = [line["loss"] for line in lines if line["kind"] == "step"]
    end = safetensors_file.load(path("end"))[0]
    return losses, {key: torch.from_numpy(numpy.array(value)) for key, value in end.items()}


def moved_by_a_bit(start, seed):
    """The weights, each with its last bit drawn anew."""
    generator = torch.Generator().manual_seed(seed)
    return {key: value * (1 + 2.0 ** -23 * torch.randint(-1, 2, value.shape, generator=generator))
            if value.is_floating_point() else value for key, value in start.items()}


def distances(run, expected, start):
    """How far a run is from the expected one: its worst loss, and what training has changed."""
    (losses, end), (expected_losses, expected_end) = run, expected
    moved, apart = {}, {}
    for key, value in start.items():
        part = "centres" if key == "head.centres" else "backbone"
        change, own = (weights[key].double() - value.double() for weights in (expected_end, end))
        moved[part] = moved.get(part, 0.0) + change.norm().item() ** 2
        apart[part] = apart.get(part, 0.0) + (own - change).norm().item() ** 2
    worst = max(abs(own - loss) / loss for own, loss in zip(losses, expected_losses))
    return {"losses": worst, **{part: (apart[part] / moved[part]) ** 0.5 for part in moved}}


def compare(program, directory, name, image, rate, seed):
    torch.manual_seed(seed)
    network, margin, flags = CASES[name]
    model = face_models.build(network, image)
    face_models.small_start(model, 0.1, 0.3)
    centres = 0.01 * torch.randn(CLASSES, 512)
    pixels = torch.randint(0, 256, (BATCH, image, image, 3), dtype=torch.uint8)
    labels = torch.randint(0, CLASSES, (BATCH,))
    start = {key: value.detach().clone() for key, value in model.state_dict().items()
             if not key.endswith("num_batches_tracked")}
    start["head.centres"] = centres
    safetensors_file.save(os.path.join(directory, "start"),
                          {key: value.numpy() for key, value in start.items()})
    safetensors_file.save(os.path.join(directory, "images"),
                          {"images": pixels.numpy(), "labels": labels.int().numpy()})

    own = train_there(program, directory, ["--model", network, *flags], image, rate)
    reference = functools.partial(train_here, network, image, margin=margin, pixels=pixels, labels=labels, rate=rate)
    expected = reference(start, torch.double if network == "mobilefacenet" else torch.float)
    found, allowed = distances(own, expected, start), dict(TOLERANCES)
    if network == "mobilefacenet" and rate > CALM:
        for sample in range(SAMPLES):
            other = reference(moved_by_a_bit(start, seed + sample), torch.double)
            for part, distance in distances(other, expected, start).items():
                allowed[part] = max(allowed[part], TIMES * distance)
    single, bounds = {}, single_steps.TOLERANCES
    if network == "mobilefacenet":
        single = single_steps.compare_steps(
            face_models.build(network, image).double().train(), loss_function(margin, pixels, labels, torch.double),
            start, os.path.join(directory, "steps"), own[0], rate=rate, momentum=0.9, decay=5e-4)
    good = (len(own[0]) == STEPS and all(found[part] <= allowed[part] for part in allowed)
            and all(single[part] <= bounds[part] for part in single))
    print(f"{name}, rate {rate}: losses {expected[0][0]:.2f} to {expected[0][-1]:.2f}; apart: "
          + ", ".join(f"{part} {found[part]:.1e} (of {allowed[part]:.1e})" for part in allowed)
          + "".join(f"; each step: {part} {single[part]:.1e}" for part in single)
          + ("" if good else "  WRONG"), flush=True)
    if not good:
        print(f"  {own[0]} instead of {expected[0]}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program")
    parser.add_argument("--image", type=int, default=112)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, nargs="+", default=[0.02, 0.1])
    parser.add_argument("--case", default="")
    parser.add_argument("--quick", action="store_true", help="four of the cases")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [name for name in CASES
              if arguments.case in name and (name in QUICK or not arguments.quick)]
    with tempfile.TemporaryDirectory(prefix="millrace-heads-") as directory:
        good = [compare(os.path.abspath(arguments.program), directory, name, arguments.image, rate,
                        arguments.seed) for name in chosen for rate in arguments.rate]
    sys.exit(0 if good and all(good) else 1)


if __name__ == "__main__":
    main()
