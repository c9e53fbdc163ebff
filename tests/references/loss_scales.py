#!/usr/bin/python3
"""The dynamic loss scale against torch's GradScaler on the same sequence of overflows: the scale of
every step, and which steps are skipped, must be equal."""

import importlib.util
import os

import numpy
import torch
from torch.cuda.amp import grad_scaler

import reference

STEPS = 40


def scaler_for_processors():
    """torch's own scaler that updates its scale without CUDA.

    It is the one of its sharded data parallelism; that package as a whole cannot be imported by
    Debian's Python, so its file is. The rank that it would ask for other ranks' overflows is alone.
    """
    path = os.path.join(os.path.dirname(torch.__file__), "distributed", "fsdp",
                        "sharded_grad_scaler.py")
    description = importlib.util.spec_from_file_location("sharded_grad_scaler", path)
    module = importlib.util.module_from_spec(description)
    description.loader.exec_module(module)
    grad_scaler.amp_definitely_not_available = lambda: False

    class Scaler(module.ShardedGradScaler):
        unscale_ = grad_scaler.GradScaler.unscale_

    return Scaler


def expected(scaler, overflows):
    """The scale of each step and whether it was skipped, told from whether the weight moved."""
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1)
    steps = []
    for step in range(STEPS):
        before = weight.detach().clone()
        optimizer.zero_grad(set_to_none=True)
        scaler.scale((weight * (float("inf") if step in overflows else 1.0)).sum()).backward()
        scale = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        steps.append((scale, torch.equal(before, weight.detach())))
    return steps


def draws(seed):
    """Windows and the steps that overflow: none, few, many, in a row, one at a window's end."""
    generator = numpy.random.default_rng(seed)
    yield 3, [2, 3, 8]
    yield 4, list(range(10, 22))
    for window, share in ((1, 0.5), (2, 0.4), (5, 0.1), (7, 0.03), (6, 0.0)):
        yield window, [step for step in range(STEPS) if generator.random() < share]


def main():
    arguments = reference.parser(__doc__).parse_args()
    program = reference.Program(arguments.program)
    scaler_class = scaler_for_processors()
    comparison = reference.Comparison("loss scales", 0)
    for number, (window, overflows) in enumerate(draws(arguments.seed)):
        named = ",".join(str(step + 1) for step in overflows)  # the program counts steps from 1
        inject = ["--inject-overflow", named] if overflows else []
        first = ["--loss-scale-min", 2.0**-24, "--loss-scale-max", 2.0**32]
        steps = program.train("--model", "fashion_cnn", "--image", 8, "--batch", 2, "--steps", STEPS,
                              "--lr", 0.001, "--loss-scale", "dynamic", "--loss-scale-window",
                              window, *first, *inject)
        wanted = expected(scaler_class(growth_interval=window), overflows)
        skipped = [step for step, (_, skip) in enumerate(wanted) if skip]
        comparison.require(skipped == overflows, f"torch itself skipped {skipped}")
        for step, (line, (scale, skip)) in enumerate(zip(steps, wanted, strict=True)):
            where = f"draw {number}, window {window}, step {step}"
            comparison.add(where, line["loss_scale"], scale)
            comparison.require(line["skipped"] == skip, f"{where}: skipped is {line['skipped']}")
    reference.finish([comparison])


if __name__ == "__main__":
    main()
