#!/usr/bin/python3
"""The average of the weights that --ema keeps, against torch's AveragedModel on the weights of each step."""

import os

import numpy
import torch
from torch.optim.swa_utils import AveragedModel

import reference
import networks
import safetensors_file

STEPS, BATCH, DECAY, SEED = 5, 8, 0.7, 3


def job(program, directory, data, steps, *more):
    return program.run("train", "--model", "fashion_cnn", "--data", data, "--eval-data", data, "--batch",
                       BATCH, "--steps", steps, "--lr", 0.05, "--seed", SEED, "--ema", DECAY,
                       "--checkpoint", directory, "--checkpoint-every", 1, "--keep", STEPS + 1,
                       "--eval-every", 1, "--augment", "none", "--threads-per-device", 1, *more)


def expected_average(weights):
    """By torch's own class; buffers are averaged too."""
    model = networks.FashionCnn(10)
    averaged = AveragedModel(model, avg_fn=lambda average, weight, _: DECAY * average
                             + (1 - DECAY) * weight, use_buffers=True)
    for one in weights:
        model.load_state_dict({key: torch.from_numpy(value.copy()) for key, value in one.items()},
                              strict=False)
        averaged.update_parameters(model)
    return {key: value.numpy() for key, value in averaged.module.state_dict().items()
            if not key.endswith("num_batches_tracked")}


def main():
    arguments = reference.parser(__doc__).parse_args()
    torch.set_num_threads(1)
    program = reference.Program(arguments.program)
    generator = numpy.random.default_rng(arguments.seed)
    images = generator.integers(0, 256, (3 * BATCH, 1, 28, 28), numpy.uint8)
    labels = generator.permutation(numpy.arange(3 * BATCH) % 10)
    data = program.save_images("images.safetensors", images, labels)
    comparison = reference.Comparison("the average of the weights", 1e-6)

    whole = program.file("whole")
    exported = program.file("exported.safetensors")
    job(program, whole, data, STEPS, "--save-weights", exported)
    average = program.checkpoint(whole, STEPS, "average")
    expected = expected_average([program.checkpoint(whole, step, "weights")
                                 for step in range(1, STEPS + 1)])
    comparison.require(average.keys() == expected.keys(), "the average has other tensors")
    for key, value in expected.items():
        comparison.add(key, average[key], value)
    trained = program.checkpoint(whole, STEPS, "weights")
    comparison.require(numpy.abs(trained["fc.weight"] - average["fc.weight"]).max() > 1e-4,
                       "the average is what was trained last")

    # What is exported, and what an evaluation of the run sees.
    saved = safetensors_file.load(exported)[0]
    comparison.require(all((saved[key] == average[key]).all() for key in average),
                       "--save-weights wrote something else")
    printed = program.file("logits.safetensors")
    program.run("eval", whole, "--data", data, "--batch", BATCH, "--logits", printed)
    model = networks.FashionCnn(10).eval()
    model.load_state_dict({key: torch.from_numpy(value.copy()) for key, value in expected.items()}, strict=False)
    mean, deviation = reference.GREY
    with torch.no_grad():
        logits = model(torch.from_numpy((images / 255 - mean) / deviation).float())
    comparison.add("logits of the run", safetensors_file.load(printed)[0]["logits"] * 1e-2,
                   logits.numpy() * 1e-2, scale=numpy.linalg.norm(logits.numpy()))

    # Interrupted and gone on, to the bit.
    parts = program.file("parts")
    job(program, parts, data, 2)
    job(program, parts, data, STEPS, "--resume")
    resumed = program.checkpoint(parts, STEPS, "average")
    comparison.require(all((resumed[key] == average[key]).all() for key in average),
                       "a resumed job has another average")
    comparison.require(os.path.exists(os.path.join(whole, "step-00000005", "average.safetensors")),
                       "no file of the average")
    reference.finish([comparison])


if __name__ == "__main__":
    main()
