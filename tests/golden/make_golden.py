#!/usr/bin/python3
"""Makes the golden tensors of the operators: operators.safetensors and operators.json.

Inputs are float32; PyTorch computes outputs and gradients from them in float64, and the results
are rounded to float32 once, so that they hold on any machine.
"""

import argparse
import json
import os
import sys
import zlib

import numpy
import torch

import safetensors_file
from operator_cases import all_cases

HERE = os.path.dirname(os.path.abspath(__file__))


class Draw:
    """Random inputs that depend on the seed and the case's name only."""

    def __init__(self, seed, name):
        self.generator = numpy.random.default_rng([seed, zlib.crc32(name.encode())])

    def normal(self, *shape, scale=1.0, shift=0.0):
        return (self.generator.standard_normal(shape) * scale + shift).astype(numpy.float32)

    def uniform(self, *shape, low, high):
        return self.generator.uniform(low, high, shape).astype(numpy.float32)

    def distinct(self, *shape):
        count = int(numpy.prod(shape))
        values = self.generator.permutation(count) / count * 4.0 - 2.0
        return values.reshape(shape).astype(numpy.float32)

    def labels(self, count, classes):
        return self.generator.integers(0, classes, count).astype(numpy.int32)


def as_double(array):
    return torch.from_numpy(array).to(torch.int64 if array.dtype == numpy.int32 else torch.float64)


def run(case, seed):
    """Returns the tensors of a case by name and its entry of the list."""
    draw = Draw(seed, case.name)
    inputs = case.inputs(draw)
    tensors = [as_double(array) for array in inputs]
    for index in case.gradients:
        tensors[index].requires_grad_()
    output = case.compute(*tensors)

    results = {f"input{index}": array for index, array in enumerate(inputs)}
    results["output0"] = output.detach().float().numpy()
    if case.gradients:
        is_loss = output.shape == (1,)
        gradient = numpy.ones(1, numpy.float32) if is_loss else draw.normal(*output.shape)
        output.backward(as_double(gradient))
        results["grad_output0"] = gradient
        for index in case.gradients:
            results[f"grad_input{index}"] = tensors[index].grad.float().numpy()
    for name, tensor in case.extras(*tensors).items():
        results[name] = tensor.float().numpy()

    entry = {"name": case.name, "operator": case.operator, "attributes": case.attributes,
             "inputs": len(inputs), "outputs": 1, "mode": case.mode, "gradients": case.gradients}
    return {f"{case.name}/{name}": array for name, array in results.items()}, entry


def make(seed):
    tensors, entries = {}, []
    for case in all_cases():
        results, entry = run(case, seed)
        tensors.update(results)
        entries.append(entry)
    return tensors, entries


def list_text(entries):
    return "[\n" + ",\n".join("  " + json.dumps(entry) for entry in entries) + "\n]\n"


def write(directory, seed):
    os.makedirs(directory, exist_ok=True)
    tensors, entries = make(seed)
    path = os.path.join(directory, "operators.safetensors")
    safetensors_file.save(path, tensors, {"seed": str(seed)})
    with open(os.path.join(directory, "operators.json"), "w", encoding="utf-8") as file:
        file.write(list_text(entries))
    print(f"{len(entries)} cases, {len(tensors)} tensors, {os.path.getsize(path)} bytes: {path}")


def differences(directory):
    """What in `directory` differs from what PyTorch computes now, as sentences."""
    stored, metadata = safetensors_file.load(os.path.join(directory, "operators.safetensors"))
    tensors, entries = make(int(metadata["seed"]))
    with open(os.path.join(directory, "operators.json"), encoding="utf-8") as file:
        if file.read() != list_text(entries):
            yield "operators.json lists other cases"
    for name in sorted(set(stored) ^ set(tensors)):
        yield f"{name} is in only one of the two"
    for name in set(stored) & set(tensors):
        if stored[name].shape != tensors[name].shape:
            yield f"{name} has shape {stored[name].shape} instead of {tensors[name].shape}"
        elif not numpy.allclose(stored[name], tensors[name], rtol=1e-6, atol=1e-7):
            yield f"{name} has other values"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", default=HERE, help="directory to write to (this script's)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true",
                        help="write nothing; fail if the files there are not what PyTorch computes")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if not arguments.check:
        write(arguments.output, arguments.seed)
        return
    found = list(differences(arguments.output))
    if found:
        sys.exit("The golden tensors are stale, run make_golden.py: " + "; ".join(found[:5]) + ".")


if __name__ == "__main__":
    main()
