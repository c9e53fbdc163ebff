"""Each step of a job by itself: PyTorch takes the weights and momenta that the program had before it.

Where a job is chaotic, its fifth step says little of the arithmetic of one; here nothing adds up. What is
compared is the loss, and the gradient that went into the momenta, of the centres and of the whole backbone.
That weights then move by rate times momentum has only the rounding of float32 in it.
"""

import glob
import os

import numpy
import torch

import safetensors_file

# Of the loss, and in norm; PReLUs whose input is 0 but for rounding decide by it, which changes gradients by
# up to a thousandth each.
TOLERANCES = {"loss": 1e-5, "centres": 1e-4, "backbone": 2e-2, "update": 1e-6}


def checkpoint(directory, step):
    """(weights, momenta) behind a step, by name."""
    weights, momenta, parts = {}, {}, {}
    for path in sorted(glob.glob(os.path.join(directory, f"step-{step:08d}", "*.safetensors"))):
        for name, value in safetensors_file.load(path)[0].items():
            parts.setdefault(name, []).append(numpy.array(value))
    for name, pieces in parts.items():  # centres lie in a file for each device
        whole = torch.from_numpy(numpy.concatenate(pieces) if len(pieces) > 1 else pieces[0]).double()
        if name.endswith(".momentum"):
            momenta[name.removesuffix(".momentum")] = whole
        else:
            weights[name] = whole
    return weights, momenta


def apart(own, expected):
    return ((own - expected).norm() / expected.norm()).item()


def together(values, names):
    return torch.cat([values[name].flatten() for name in names])


def compare_step(model, loss_of, before, after, told, rate, momentum, decay):
    """How far the program's step is from PyTorch's; loss_of(model, centres) is what both make smaller."""
    (weights, momenta), (moved, kept) = before, after
    model.load_state_dict({name: value for name, value in weights.items() if name != "head.centres"}, strict=False)
    centres = torch.nn.Parameter(weights["head.centres"].clone())
    model.zero_grad()
    loss = loss_of(model, centres)
    loss.backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    gradients["head.centres"] = centres.grad
    expected = {name: gradient + decay * weights[name] for name, gradient in gradients.items()}
    own = {name: kept[name] - momentum * momenta.get(name, 0) for name in expected}
    backbone = sorted(set(expected) - {"head.centres"})
    steps = {name: weights[name] - rate * kept[name] for name in expected}
    return {"loss": abs(told - loss.item()) / loss.item(),
            "centres": apart(own["head.centres"], expected["head.centres"]),
            "backbone": apart(together(own, backbone), together(expected, backbone)),
            "update": apart(together(moved, sorted(steps)), together(steps, sorted(steps)))}


def compare_steps(model, loss_of, start, directory, losses, **recipe):
    """The furthest of all steps in each respect."""
    worst = dict.fromkeys(TOLERANCES, 0.0)
    before = ({name: value.double() for name, value in start.items()}, {})
    for step, told in enumerate(losses, 1):
        after = checkpoint(directory, step)
        for part, distance in compare_step(model, loss_of, before, after, told, **recipe).items():
            worst[part] = max(worst[part], distance)
        before = after
    return worst
