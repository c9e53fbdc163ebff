#!/usr/bin/python3
"""Optimizers against torch.optim, LARS and LAMB against their papers in float64: 20 steps, every weight and every
state.

train_smooth.cpp trains a small network without kinks by the flags of `millrace train`, on one batch of
tiny images, so that what differs is the optimizer. PyTorch has its own gradients, in float64.
"""

import warnings

import numpy
import torch

import reference

STEPS, BATCH, IMAGE, CLASSES = 20, 16, 8, 10
WARMUP = 4
SMOOTHING = 0.1
TOLERANCE = 1e-5


class Lars(torch.optim.Optimizer):
    """You, Gitman and Ginsburg, Large batch training of convolutional networks, algorithm 1:
    the local rate is trust * |w| / (|g| + decay * |w|), and the momentum holds rate times gradient.
    """

    def __init__(self, parameters, lr, momentum, weight_decay, trust):
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "trust": trust,
                                      "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                decay = group["weight_decay"]
                local = group["trust"] * weight.norm() / (weight.grad.norm() + decay * weight.norm())
                velocity = self.state[weight].get("momentum_buffer", torch.zeros_like(weight))
                velocity = (group["momentum"] * velocity
                            + group["lr"] * local * (weight.grad + decay * weight))
                self.state[weight]["momentum_buffer"] = velocity
                weight -= velocity


class Lamb(torch.optim.Optimizer):
    """You et al., Large batch optimization for deep learning: training BERT in 76 minutes, algorithm 2
    with phi the identity: Adam's step and the decay together get the length of the weights."""

    def __init__(self, parameters, lr, betas, eps, weight_decay):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps,
                                      "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for weight in group["params"]:
                state = self.state[weight]
                if not state:
                    state.update(step=torch.tensor(0.0), exp_avg=torch.zeros_like(weight),
                                 exp_avg_sq=torch.zeros_like(weight))
                state["step"] += 1
                state["exp_avg"].mul_(beta1).add_((1 - beta1) * weight.grad)
                state["exp_avg_sq"].mul_(beta2).add_((1 - beta2) * weight.grad ** 2)
                mean = state["exp_avg"] / (1 - beta1 ** state["step"].item())
                square = state["exp_avg_sq"] / (1 - beta2 ** state["step"].item())
                ratio = mean / (square.sqrt() + group["eps"]) + group["weight_decay"] * weight
                weight -= group["lr"] * weight.norm() / ratio.norm() * ratio


class Case:
    """Flags of the program, and the same optimizer in PyTorch, once for matrices and once for
    vectors, which are exempt from weight decay unless `decay_all`. With `say` off, rate and decay are
    the program's usual ones."""

    def __init__(self, flags, make, rate, decay, decay_all=False, clip=None, overflows=(),
                 vectors=None, say=True):
        self.flags = [*flags, *(["--lr", rate, "--weight-decay", decay] if say else [])]
        if decay_all:
            self.flags.append("--decay-all")
        if clip:
            self.flags += ["--clip-norm", clip]
        if overflows:
            self.flags += ["--loss-scale", 1024, "--inject-overflow",
                           ",".join(str(step + 1) for step in overflows)]  # counted from 1
        self.rate, self.clip, self.overflows = rate, clip, overflows
        self.make, self.decay, self.decay_all = make, decay, decay_all
        self.make_vectors = vectors or make

    def optimizers(self, model):
        matrices = [weight for weight in model.parameters() if weight.dim() > 1]
        vectors = [weight for weight in model.parameters() if weight.dim() <= 1]
        return [self.make(matrices, self.rate, self.decay),
                self.make_vectors(vectors, self.rate, self.decay if self.decay_all else 0.0)]


def sgd(momentum, nesterov=False):
    return lambda weights, rate, decay: torch.optim.SGD(
        weights, lr=rate, momentum=momentum, weight_decay=decay, nesterov=nesterov)


def adamw(beta1, beta2, epsilon):
    return lambda weights, rate, decay: torch.optim.AdamW(
        weights, lr=rate, betas=(beta1, beta2), eps=epsilon, weight_decay=decay)


def lars(momentum, trust):
    return lambda weights, rate, decay: Lars(weights, rate, momentum, decay, trust)


def lamb(beta1, beta2, epsilon):
    return lambda weights, rate, decay: Lamb(weights, rate, (beta1, beta2), epsilon, decay)


def rmsprop(momentum, alpha, epsilon):
    return lambda weights, rate, decay: torch.optim.RMSprop(
        weights, lr=rate, alpha=alpha, eps=epsilon, weight_decay=decay, momentum=momentum)


ADAMW = ["--optimizer", "adamw", "--adam-beta1", 0.8, "--adam-beta2", 0.99, "--adam-epsilon", 1e-3]
LAMB = ["--optimizer", "lamb", *ADAMW[2:]]
RMSPROP = ["--optimizer", "rmsprop", "--adam-beta2", 0.9, "--adam-epsilon", 0.0316]
LARS = ["--optimizer", "lars", "--momentum", 0.8]
CASES = {
    "sgd, no momentum": Case(["--momentum", 0], sgd(0), 0.3, 0.03),
    "sgd": Case(["--momentum", 0.8], sgd(0.8), 0.15, 0.03),
    "sgd, as usual": Case([], sgd(0.9), 0.1, 1e-4, say=False),
    "sgd, decay of all, clipped": Case([], sgd(0.9), 0.15, 0.03, decay_all=True, clip=0.54),
    "nesterov": Case(["--momentum", 0.8, "--nesterov"], sgd(0.8, True), 0.15, 0.03),
    "nesterov, clipped, overflows": Case(["--nesterov"], sgd(0.9, True), 0.15, 0.03, clip=0.54,
                                         overflows=(0, 7, 8)),
    "adamw, as usual": Case(["--optimizer", "adamw"], adamw(0.9, 0.999, 1e-8), 0.001, 0.01, say=False),
    "adamw": Case(ADAMW, adamw(0.8, 0.99, 1e-3), 0.01, 0.2),
    "adamw, decay of all, clipped": Case(ADAMW, adamw(0.8, 0.99, 1e-3), 0.01, 0.2, decay_all=True,
                                         clip=0.3),
    "adamw, overflows": Case(ADAMW, adamw(0.8, 0.99, 1e-3), 0.01, 0.2, overflows=(0, 3, 11)),
    "lars": Case([*LARS, "--lars-trust", 0.02], lars(0.8, 0.02), 0.5, 0.03, vectors=sgd(0.8)),
    "lars, usual trust, clipped": Case(LARS, lars(0.8, 0.001), 2.0, 0.03, decay_all=True, clip=0.3,
                                       vectors=sgd(0.8)),
    "lamb": Case(LAMB, lamb(0.8, 0.99, 1e-3), 0.02, 0.2, vectors=adamw(0.8, 0.99, 1e-3)),
    "lamb, as usual": Case(["--optimizer", "lamb"], lamb(0.9, 0.999, 1e-8), 0.005, 0.01, say=False,
                           vectors=adamw(0.9, 0.999, 1e-8)),
    "lamb, decay of all, clipped, overflows": Case(
        LAMB, lamb(0.8, 0.99, 1e-3), 0.02, 0.2, decay_all=True, clip=0.6, overflows=(0, 3, 11),
        vectors=adamw(0.8, 0.99, 1e-3)),
    "rmsprop": Case([*RMSPROP, "--momentum", 0.8], rmsprop(0.8, 0.9, 0.0316), 0.01, 0.03),
    "rmsprop, no momentum": Case([*RMSPROP, "--momentum", 0], rmsprop(0, 0.9, 0.0316), 0.02, 0.03),
    "rmsprop, as usual": Case(["--optimizer", "rmsprop", "--adam-epsilon", 0.01],
                              rmsprop(0.9, 0.999, 0.01), 0.01, 1e-4, say=False),
    "rmsprop, decay of all, clipped, overflows": Case(
        RMSPROP, rmsprop(0.9, 0.9, 0.0316), 0.01, 0.03, decay_all=True, clip=0.5, overflows=(0, 3, 11)),
}


class SmoothNetwork(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.conv1 = torch.nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(16)
        self.conv2 = torch.nn.Conv2d(16, 12, 3, padding=1)
        self.fc = torch.nn.Linear(12 * (IMAGE // 2) ** 2, CLASSES)
        torch.nn.init.uniform_(self.bn1.weight, 0.8, 1.2)
        torch.nn.init.normal_(self.bn1.bias, std=0.3)

    def forward(self, images):
        x = torch.nn.functional.avg_pool2d(torch.tanh(self.bn1(self.conv1(images))), 2)
        return self.fc(torch.tanh(self.conv2(x)).flatten(1))


def schedule(optimizer):
    rise = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1 / WARMUP,
                                             total_iters=WARMUP - 1)
    fall = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS - WARMUP)
    return torch.optim.lr_scheduler.SequentialLR(optimizer, [rise, fall], milestones=[WARMUP])


def follow(case, model, images, labels):
    """Trains in PyTorch; returns how many steps were clipped."""
    optimizers = case.optimizers(model)
    schedules = [schedule(optimizer) for optimizer in optimizers]
    model.train()
    clipped = 0
    for step in range(STEPS):
        model.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(images), labels, label_smoothing=SMOOTHING)
        loss.backward()
        if case.clip:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), case.clip)
            clipped += bool(norm > case.clip)
        for optimizer, rates in zip(optimizers, schedules):
            if step not in case.overflows:
                optimizer.step()
            rates.step()
    return clipped, {weight: state for optimizer in optimizers
                     for weight, state in optimizer.state.items()}


STATES = {"momentum_buffer": "momentum", "exp_avg": "first_moment", "exp_avg_sq": "second_moment",
          "square_avg": "second_moment",
          "step": "updates"}


def compare(program, name, case, data, images, labels, seed):
    model = SmoothNetwork(seed).double()
    weights = program.save_weights("weights.safetensors", model)
    before = {key: value.detach().clone() for key, value in model.named_parameters()}
    checkpoint = program.file(name.replace(" ", "-"))
    program.run("--image", IMAGE, "--classes", CLASSES, "--batch", BATCH, "--data", data,
                "--augment", "none", "--label-smoothing", SMOOTHING, "--load-weights", weights,
                "--steps", STEPS, "--lr-schedule", "cosine", "--lr-warmup-steps", WARMUP,
                "--threads-per-device", 1, "--conv-algo", "direct", "--checkpoint", checkpoint,
                *case.flags)
    own = program.checkpoint(checkpoint, STEPS, "weights")
    states = program.checkpoint(checkpoint, STEPS, "optimizer")
    clipped, expected_states = follow(case, model, images, labels)

    comparison = reference.Comparison(name, TOLERANCE)
    if case.clip:
        comparison.require(0 < clipped < STEPS, f"{clipped} steps were clipped, which shows little")
    moved = []
    for key, weight in model.named_parameters():
        comparison.add(key, own[key], weight.detach())
        moved.append(((weight.detach() - before[key]).norm() / before[key].norm()).item())
        for state, value in expected_states.get(weight, {}).items():
            counts = state == "step" and isinstance(case.make([weight], 1, 0), torch.optim.RMSprop)
            if state in STATES and value is not None and not counts:
                found = states.pop(f"{key}.{STATES[state]}")
                comparison.add(f"{key}.{STATES[state]}", found, value.reshape(found.shape))
    comparison.require(not states, f"states that PyTorch lacks: {sorted(states)[:3]}")
    print(f"  weights moved by {min(moved):.0e} to {max(moved):.0e} of their norms")
    return comparison


def main():
    parser = reference.parser(__doc__)
    parser.add_argument("--case", choices=CASES, help="one alone")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    # torch's, about its own SequentialLR and about steps that are skipped.
    warnings.filterwarnings("ignore", category=UserWarning)
    program = reference.Program(arguments.program)
    generator = numpy.random.default_rng(arguments.seed)
    images = generator.integers(0, 256, (BATCH, 1, IMAGE, IMAGE), numpy.uint8)
    labels = numpy.arange(BATCH) % CLASSES
    data = program.save_images("images.safetensors", images, labels)
    mean, deviation = reference.GREY
    pixels = (torch.from_numpy(images).double() / 255 - mean) / deviation
    reference.finish([compare(program, name, case, data, pixels, torch.from_numpy(labels),
                              arguments.seed)
                      for name, case in CASES.items() if arguments.case in (None, name)])


if __name__ == "__main__":
    main()
