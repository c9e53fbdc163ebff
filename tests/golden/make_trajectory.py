#!/usr/bin/python3
"""Trains a torchvision model or a face network for a few SGD steps and writes all that is needed to do the same.

Dropout is off. Normalisation layers and biases start from random values, not from ones and zeros,
so that mixed-up names show; residual branches start small, which keeps gradients tame. The
README beside this script describes the files.
"""

import argparse
import json
import os
import sys

import numpy
import torch
import torchvision
from torchvision.models.resnet import BasicBlock, Bottleneck

import face_models
import safetensors_file

MODELS = ["alexnet", "vgg16", "vgg16_bn",
          "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", *face_models.NAMES]

# Learning rate and weight decay. With batch norm and small batches, float32 gradients can be
# percents away from float64's (perhaps ReLUs whose input rounds to the other side of zero), and the
# losses drift accordingly; the README has measurements. A large decay still shows at a low rate.
PLAIN = (0.01, 0.1)
NORMALISED = (3e-5, 1.0)
RESIDUAL_SCALE = (0.1, 0.3)
LARGEST_GRADIENT = 40000


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--output", required=True, help="directory to write to")
    parser.add_argument("--image", type=int, default=64)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batches", type=int, help="distinct batches, used in turn (one a step)")
    parser.add_argument("--lr", type=float, help="by default one that suits the model")
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--nesterov", action="store_true")
    parser.add_argument("--weight-decay", type=float, help="by default one large enough to show")
    parser.add_argument("--decay", choices=["all", "matrices"], default="all",
                        help="'matrices' leaves out parameters of one dimension: biases and norms")
    parser.add_argument("--label-smoothing", type=float, default=0.1)
    parser.add_argument("--precision", choices=["float32", "float64"], default="float32")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    lr, weight_decay = PLAIN if arguments.model in ("alexnet", "vgg16") else NORMALISED
    arguments.lr = lr if arguments.lr is None else arguments.lr
    if arguments.weight_decay is None:
        arguments.weight_decay = weight_decay
    return arguments


def build(arguments):
    torch.manual_seed(arguments.seed)
    if arguments.model in face_models.NAMES:
        model = face_models.build(arguments.model, arguments.image, arguments.classes)
    else:
        model = getattr(torchvision.models, arguments.model)(weights=None,
                                                             num_classes=arguments.classes)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        elif isinstance(module, (torch.nn.BatchNorm2d, torch.nn.BatchNorm1d)):
            if module.weight.requires_grad:
                torch.nn.init.uniform_(module.weight, 0.8, 1.2)
            torch.nn.init.normal_(module.bias, std=0.1)
            torch.nn.init.normal_(module.running_mean, std=0.1)
            torch.nn.init.uniform_(module.running_var, 0.8, 1.2)
        elif isinstance(module, torch.nn.PReLU):
            torch.nn.init.uniform_(module.weight, 0.1, 0.4)
        elif isinstance(module, (torch.nn.Conv2d, torch.nn.Linear)) and module.bias is not None:
            torch.nn.init.normal_(module.bias, std=0.02)
    for module in model.modules():
        if isinstance(module, (BasicBlock, Bottleneck)):
            last = module.bn3 if isinstance(module, Bottleneck) else module.bn2
            torch.nn.init.uniform_(last.weight, *RESIDUAL_SCALE)
    face_models.small_start(model, *RESIDUAL_SCALE)
    return model


def draw_batches(arguments):
    generator = numpy.random.default_rng(arguments.seed)
    shape = (arguments.batch, 3, arguments.image, arguments.image)
    tensors = {}
    for step in range(arguments.batches or arguments.steps):
        tensors[f"step{step}/images"] = generator.standard_normal(shape).astype(numpy.float32)
        labels = generator.integers(0, arguments.classes, arguments.batch)
        tensors[f"step{step}/labels"] = labels.astype(numpy.int32)
    return tensors


def make_optimizer(arguments, model):
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    matrices = [weight for weight in trained if weight.dim() > 1]
    others = [weight for weight in trained if weight.dim() <= 1]
    decay_of_others = arguments.weight_decay if arguments.decay == "all" else 0.0
    groups = [{"params": matrices}, {"params": others, "weight_decay": decay_of_others}]
    return torch.optim.SGD(groups, lr=arguments.lr, momentum=arguments.momentum,
                           weight_decay=arguments.weight_decay, nesterov=arguments.nesterov)


def train(arguments, model, batches, dtype):
    count = arguments.batches or arguments.steps
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=arguments.label_smoothing)
    optimizer = make_optimizer(arguments, model)
    model.train()
    losses, gradients = [], {}
    for step in range(arguments.steps):
        images = torch.from_numpy(batches[f"step{step % count}/images"]).to(dtype)
        labels = torch.from_numpy(batches[f"step{step % count}/labels"]).long()
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step == 0:
            gradients = {name: weight.grad.float().numpy().copy()
                         for name, weight in model.named_parameters()
                         if weight.requires_grad and weight.numel() <= LARGEST_GRADIENT}
    return losses, gradients


def main():
    arguments = parse_arguments()
    dtype = getattr(torch, arguments.precision)
    torch.set_num_threads(arguments.threads)
    os.makedirs(arguments.output, exist_ok=True)

    def path(name):
        return os.path.join(arguments.output, name)

    model = build(arguments)
    batches = draw_batches(arguments)
    safetensors_file.save(path("weights.safetensors"),
                          {name: value.numpy() for name, value in model.state_dict().items()})
    safetensors_file.save(path("batches.safetensors"), batches)

    model = model.to(dtype)
    with torch.no_grad():
        images = torch.from_numpy(batches["step0/images"]).to(dtype)
        outputs = {"logits": model.eval()(images).float().numpy()}
        if arguments.model in face_models.NAMES:
            outputs["embedding"] = model.embed(images).float().numpy()
    safetensors_file.save(path("logits.safetensors"), outputs)

    losses, gradients = train(arguments, model, batches, dtype)
    safetensors_file.save(path("gradients.safetensors"), gradients)
    if not numpy.isfinite(losses).all():
        sys.exit(f"The losses of {arguments.model} are not finite; lower --lr.")
    settings = {name: value for name, value in vars(arguments).items() if name != "output"}
    settings["batches"] = arguments.batches or arguments.steps
    with open(path("trajectory.json"), "w", encoding="utf-8") as file:
        json.dump({**settings, "losses": losses}, file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()
