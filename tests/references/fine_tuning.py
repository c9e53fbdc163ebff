#!/usr/bin/python3
"""Fine-tuning on few pictures: above training from scratch, and as good as PyTorch by the same recipe.

Fashion-MNIST as folders of PNG files. A backbone is trained on half of the classes; for each seed a
network for the other half starts from it, on 20 pictures a class, and is measured on all test
pictures of those. PyTorch has the same weights, pictures and recipe, and an order and a new last
layer of its own.
"""

import gzip
import math
import os
import re

import numpy
import torch
from PIL import Image

import reference
import networks
import safetensors_file

SOURCE = "/usr/share/datasets/fashion-mnist"
KNOWN, NEW = range(5), range(5, 10)
EACH, BATCH, EPOCHS = 20, 20, 20
RATE, MOMENTUM, DECAY, SMOOTHING = 0.02, 0.9, 1e-4, 0.1
SEEDS = (1, 2, 3)
ALLOWED = 1.0  # points between the means


def read(kind):
    def numbers(name, header):
        with gzip.open(os.path.join(SOURCE, name)) as file:
            return numpy.frombuffer(file.read(), numpy.uint8, offset=header)
    labels = numbers(f"{kind}-labels-idx1-ubyte.gz", 8)
    return numbers(f"{kind}-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28), labels


def chosen(images, labels, classes, each, generator=None):
    """The first pictures of each class, or drawn ones, with labels from 0."""
    places = []
    for label in classes:
        own = numpy.flatnonzero(labels == label)
        places.append(own[:each] if generator is None else generator.permutation(own)[:each])
    return (images[numpy.concatenate(places)],
            numpy.repeat(numpy.arange(len(places)), [len(place) for place in places]))


def write_folder(path, images, labels):
    for number, (image, label) in enumerate(zip(images, labels)):
        folder = os.path.join(path, f"class{label}")
        os.makedirs(folder, exist_ok=True)
        Image.fromarray(image).save(os.path.join(folder, f"{number:06d}.png"))
    return "folder:" + path


def as_floats(images):
    mean, deviation = reference.GREY
    return torch.from_numpy((images[:, None] / 255 - mean) / deviation).float()


def recipe(seed):
    return ["--batch", BATCH, "--epochs", EPOCHS, "--lr", RATE, "--momentum", MOMENTUM,
            "--weight-decay", DECAY, "--lr-schedule", "cosine", "--label-smoothing", SMOOTHING,
            "--augment", "none", "--seed", seed]


def own_accuracy(program, data, test, seed, *options):
    text = program.run("train", "--model", "fashion_cnn", "--data", data, "--eval-data", test,
                       "--eval-every", f"{EPOCHS}e", *recipe(seed), *options)
    return float(re.findall(r"top-1 ([0-9.]+) ?%", text)[-1])


def peer_accuracy(weights, images, labels, test, seed):
    """The same in PyTorch's own classes."""
    torch.manual_seed(seed)
    model = networks.FashionCnn(len(NEW))
    state = {key: torch.from_numpy(value.copy()) for key, value in weights.items() if not key.startswith("fc")}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and all(key.startswith("fc") or "tracked" in key for key in missing)
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": DECAY},
              {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0}]
    optimizer = torch.optim.SGD(groups, RATE, MOMENTUM)
    loss_of = torch.nn.CrossEntropyLoss(label_smoothing=SMOOTHING)
    inputs, targets = as_floats(images), torch.from_numpy(labels)
    per_epoch = len(images) // BATCH
    step = 0
    for _ in range(EPOCHS):
        model.train()
        order = torch.randperm(len(images))
        for rows in order[:per_epoch * BATCH].split(BATCH):
            for group in optimizer.param_groups:
                group["lr"] = RATE * (1 + math.cos(math.pi * step / (EPOCHS * per_epoch))) / 2
            optimizer.zero_grad()
            loss_of(model(inputs[rows]), targets[rows]).backward()
            optimizer.step()
            step += 1
    model.eval()
    with torch.no_grad():
        logits = torch.cat([model(part) for part in as_floats(test[0]).split(500)])
    return (logits.argmax(1).numpy() == test[1]).mean() * 100


def main():
    arguments = reference.parser(__doc__).parse_args()
    torch.set_num_threads(2)
    program = reference.Program(arguments.program, patience=1800)
    images, labels = read("train")
    test = chosen(*read("t10k"), NEW, 1000)
    test_folder = write_folder(program.file("test"), *test)
    known = write_folder(program.file("known"), *chosen(images, labels, KNOWN, 2000))
    backbone = program.file("backbone.safetensors")
    program.run("train", "--model", "fashion_cnn", "--data", known, "--epochs", 3, "--batch", 64, "--lr",
                0.05, "--lr-schedule", "cosine", "--seed", 0, "--save-weights", backbone)
    weights = safetensors_file.load(backbone)[0]
    rows = []
    for seed in SEEDS:
        few = chosen(images, labels, NEW, EACH, numpy.random.default_rng(seed))
        data = write_folder(program.file(f"few{seed}"), *few)
        rows.append((own_accuracy(program, data, test_folder, seed, "--load-weights", backbone,
                                  "--new-layers", "auto"),
                     peer_accuracy(weights, *few, test, seed),
                     own_accuracy(program, data, test_folder, seed)))
        print(f"seed {seed}: fine-tuned {rows[-1][0]:.2f} %, PyTorch {rows[-1][1]:.2f} %, "
              f"from scratch {rows[-1][2]:.2f} %", flush=True)
    own, peer, scratch = numpy.mean(rows, 0)
    print(f"mean: fine-tuned {own:.2f} %, PyTorch {peer:.2f} %, from scratch {scratch:.2f} %")
    comparison = reference.Comparison("fine-tuning, points from PyTorch", ALLOWED)
    comparison.add("mean of three seeds", own, peer, scale=1)
    comparison.require(own > scratch, "fine-tuning is no better than training from scratch")
    reference.finish([comparison])


if __name__ == "__main__":
    main()
