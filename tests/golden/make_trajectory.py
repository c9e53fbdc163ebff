#!/usr/bin/python3
"""Trains a torchvision model or a face network for a few SGD steps and writes all that is needed to do the same.

networks.py says how they start. The README beside this script describes the files.
"""

import argparse
import json
import os
import sys

import numpy
import torch

import face_models
import networks
import safetensors_file

# Learning rate and weight decay. With batch norm and small batches, rounding grows from step to step
# and the losses drift; the README has measurements. A large decay still shows at a low rate.
PLAIN = (0.01, 0.1)
NORMALISED = (3e-5, 1.0)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=networks.NAMES, required=True)
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


def draw_batches(arguments):
    generator = numpy.random.default_rng(arguments.seed)
    channels = 1 if arguments.model == "fashion_cnn" else 3
    shape = (arguments.batch, channels, arguments.image, arguments.image)
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
    losses = []
    for step in range(arguments.steps):
        images = torch.from_numpy(batches[f"step{step % count}/images"]).to(dtype)
        labels = torch.from_numpy(batches[f"step{step % count}/labels"]).long()
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    arguments = parse_arguments()
    dtype = getattr(torch, arguments.precision)
    torch.set_num_threads(arguments.threads)
    os.makedirs(arguments.output, exist_ok=True)

    def path(name):
        return os.path.join(arguments.output, name)

    model = networks.build(arguments.model, arguments.image, arguments.classes, arguments.seed)
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

    losses = train(arguments, model, batches, dtype)
    if not numpy.isfinite(losses).all():
        sys.exit(f"The losses of {arguments.model} are not finite; lower --lr.")
    settings = {name: value for name, value in vars(arguments).items() if name != "output"}
    settings["batches"] = arguments.batches or arguments.steps
    with open(path("trajectory.json"), "w", encoding="utf-8") as file:
        json.dump({**settings, "losses": losses}, file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()
