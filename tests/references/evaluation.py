#!/usr/bin/python3
"""Evaluation of a checkpoint against PyTorch with the exported weights on the same image files:
logits, the best class of each, and the figures that the program prints.

PyTorch's side starts from the files: PIL decodes, torchvision resizes (antialiased, on floats),
crops and normalises, and the network runs in float64.
"""

import json
import os

import numpy
import torch
import torchvision.transforms.functional as F

import reference
import networks
import safetensors_file
from image_files import KINDS, load
from images import norm, evaluated, float_resize

CLASSES = 4
TOLERANCE = 1e-4
# Model, size and the recipe that the program takes for it.
JOBS = [("resnet18", 96, "photo"), ("fashion_cnn", 28, "small"), ("mobilefacenet", 48, "face")]


def write_folder(directory, seed):
    """A class a directory; files in the order in which the program reads them."""
    generator = numpy.random.default_rng(seed)
    files = []
    for label in range(CLASSES):
        place = os.path.join(directory, f"class_{label}")
        os.makedirs(place)
        for kind in KINDS[label::2]:
            files.append((kind.write(place, generator), label))
    return sorted(files)


def inputs(files, recipe, size, channels):
    mean, deviation = norm(recipe, channels)
    images = []
    for path, _ in files:
        image = load(path, "RGB" if channels == 3 else "L")
        pixels = torch.from_numpy(numpy.array(image, numpy.float32))
        pixels = pixels.permute(2, 0, 1) if channels == 3 else pixels[None]
        pixels = evaluated(pixels, recipe, size, float_resize) / 255
        images.append(F.normalize(pixels.double(), mean[:channels], deviation[:channels]))
    return torch.stack(images)


def compare(program, model_name, size, recipe, seed):
    channels = 1 if model_name == "fashion_cnn" else 3
    folder = program.file(f"{model_name}-images")
    files = write_folder(folder, seed)
    start = program.save_weights("weights.safetensors",
                                 networks.build(model_name, size, CLASSES, seed))
    checkpoint = program.file(f"{model_name}-run")
    model = ["--model", model_name, "--image", size, "--classes", CLASSES]
    program.train(*model, "--data", "folder:" + folder, "--batch", 8, "--steps", 3, "--lr", 0.01,
                  "--load-weights", start, "--checkpoint", checkpoint)
    exported, logits = program.file("exported.safetensors"), program.file("logits.safetensors")
    program.run("ckpt", "export", checkpoint, exported)
    summary = program.file("summary.json")
    program.run("eval", "--checkpoint", checkpoint, "--data", "folder:" + folder, "--batch", 5,
                "--logits", logits, "--summary", summary, "--threads-per-device", 1)
    with open(summary, encoding="utf-8") as file:
        figures = json.load(file)
    own = safetensors_file.load(logits)[0]

    network = networks.build(model_name, size, CLASSES, seed + 1).double().eval()
    weights = {key: torch.tensor(value) for key, value in safetensors_file.load(exported)[0].items()}
    missing = network.load_state_dict(weights, strict=False)
    labels = torch.tensor([label for _, label in files])
    with torch.no_grad():
        expected = network(inputs(files, recipe, size, channels))

    comparison = reference.Comparison(f"evaluation of {model_name}", TOLERANCE)
    comparison.require(not missing.unexpected_keys and
                       all(key.endswith("num_batches_tracked") for key in missing.missing_keys),
                       f"the exported weights do not fit: {missing}")
    comparison.require(own["labels"].tolist() == labels.tolist(), "the labels are others")
    for (path, _), row, wanted in zip(files, own["logits"], expected, strict=True):
        name = os.path.basename(path)
        comparison.add(name, row, wanted, scale=expected.abs().max().item())
        comparison.require(row.argmax() == wanted.argmax().item(), f"{name}: another best class")
    comparison.add("loss", figures["loss"],
                   torch.nn.functional.cross_entropy(expected, labels).item())
    comparison.add("top-1", figures["top1"],
                   (expected.argmax(1) == labels).double().mean().item(), scale=1)
    comparison.require(figures["samples"] == len(files), f"{figures['samples']} samples")
    return comparison


def main():
    arguments = reference.parser(__doc__).parse_args()
    torch.set_num_threads(1)
    program = reference.Program(arguments.program)
    reference.finish([compare(program, *job, arguments.seed) for job in JOBS])


if __name__ == "__main__":
    main()
