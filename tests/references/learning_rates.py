#!/usr/bin/python3
"""Every learning-rate schedule, with and without warm-up, against torch.optim.lr_scheduler: the
rate of each step that the program reports. (That the step runs at it is optimizers.py's part.)"""

import warnings

import numpy
import torch
from torch.optim import lr_scheduler

import reference

STEPS = 24
BASE = 0.4
TOLERANCE = 1e-6


def cosine(optimizer, steps, final=0.0):
    return lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps, eta_min=final)


def polynomial(optimizer, steps, power):
    return lr_scheduler.PolynomialLR(optimizer, total_iters=steps, power=power)


def milestones(optimizer, at, gamma):
    return lr_scheduler.MultiStepLR(optimizer, milestones=at, gamma=gamma)


def constant(optimizer):
    return lr_scheduler.ConstantLR(optimizer, factor=1.0)


def with_warmup(steps, make):
    """`make` starts when the warm-up has ended; step 0 runs at 1 / steps of the base."""
    def schedule(optimizer):
        rise = lr_scheduler.LinearLR(optimizer, start_factor=1 / steps, total_iters=steps - 1)
        return lr_scheduler.SequentialLR(optimizer, [rise, make(optimizer)], milestones=[steps])
    return schedule


CASES = {
    "constant": (["--lr-schedule", "constant"], constant, BASE, 0),
    "constant, warm-up": (["--lr-schedule", "constant", "--lr-warmup-steps", 6],
                          with_warmup(6, constant), BASE, 0),
    "step": (["--lr-schedule", "step", "--lr-milestones", "5,11,12", "--lr-gamma", 0.3],
             lambda optimizer: milestones(optimizer, [5, 11, 12], 0.3), BASE, 0),
    # Milestones count from step 0; torch's, inside of a sequence, from its part's first step.
    "step, warm-up": (["--lr-schedule", "step", "--lr-milestones", "9,17", "--lr-gamma", 0.5,
                       "--lr-warmup-steps", 4],
                      with_warmup(4, lambda optimizer: milestones(optimizer, [9 - 4, 17 - 4], 0.5)),
                      BASE, 0),
    "cosine": (["--lr-schedule", "cosine"],
               lambda optimizer: cosine(optimizer, STEPS), BASE, 0),
    "cosine to a rate": (["--lr-schedule", "cosine", "--lr-final", 0.05],
                         lambda optimizer: cosine(optimizer, STEPS, 0.05), BASE, 0),
    "cosine, warm-up": (["--lr-schedule", "cosine", "--lr-warmup-steps", 5, "--lr-final", 0.01],
                        with_warmup(5, lambda optimizer: cosine(optimizer, STEPS - 5, 0.01)),
                        BASE, 0),
    "polynomial": (["--lr-schedule", "polynomial", "--lr-power", 1.5],
                   lambda optimizer: polynomial(optimizer, STEPS, 1.5), BASE, 0),
    "polynomial, usual power": (["--lr-schedule", "polynomial", "--lr-warmup-steps", 3],
                                with_warmup(3, lambda optimizer: polynomial(optimizer, STEPS - 3, 2)),
                                BASE, 0),
    # torch's ends at 0; ours falls from the base to --lr-final, the same curve moved up.
    "polynomial to a rate": (["--lr-schedule", "polynomial", "--lr-power", 3, "--lr-final", 0.1],
                             lambda optimizer: polynomial(optimizer, STEPS, 3), BASE - 0.1, 0.1),
}


def expected(schedule, base, raised):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=base)
    scheduler = schedule(optimizer)
    rates = []
    for _ in range(STEPS):
        rates.append(optimizer.param_groups[0]["lr"] + raised)
        optimizer.step()
        scheduler.step()
    return rates


def main():
    arguments = reference.parser(__doc__).parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)  # torch's, about its own SequentialLR
    program = reference.Program(arguments.program)
    data = program.save_images("images.safetensors", numpy.zeros((8, 1, 8, 8), numpy.uint8),
                               numpy.arange(8))
    comparison = reference.Comparison("learning rates", TOLERANCE)
    lengths = {"steps": ["--data", "synthetic", "--batch", 2, "--steps", STEPS],
               "epochs": ["--data", data, "--batch", 2, "--epochs", STEPS // 4]}
    for name, (flags, schedule, base, raised) in CASES.items():
        rates = expected(schedule, base, raised)
        for length, data_flags in lengths.items():
            if length == "epochs" and "warm-up" not in name:
                continue
            steps = program.train("--model", "fashion_cnn", "--image", 8, "--lr", BASE, *data_flags,
                                  *flags)
            comparison.require(len(steps) == STEPS, f"{name}: {len(steps)} steps")
            for step, line in enumerate(steps[:STEPS]):
                comparison.add(f"{name} by {length}, step {step}", line["learning_rate"],
                               rates[step], scale=max(rates[step], 1e-3 * BASE))
    reference.finish([comparison])


if __name__ == "__main__":
    main()
