#!/usr/bin/python3
"""Weights that PyTorch saved, in every way that it has, against PyTorch's own logits with them.

Each file is evaluated by the program as it is; the network beside it is the one that was saved, in
float64, with its weights rounded as the file has them.
"""

import collections
import json
import os
import re

import numpy
import torch
import torchvision

import reference
import safetensors_file

SIZE = 64
CLASSES = 10
TOLERANCE = 1e-4
SAFETENSORS = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16",
               torch.bfloat16: "BF16"}


def build(name, seed):
    torch.manual_seed(seed)
    model = getattr(torchvision.models, name)(num_classes=CLASSES)
    for key, value in model.state_dict().items():
        if key.endswith("running_var"):
            value.uniform_(0.5, 2)
        elif key.endswith("running_mean"):
            value.normal_(0, 0.1)
    return model.eval()


def rounded(model, kind):
    """The model with weights as a type of 16 bits has them, and its state in that type."""
    state = {key: value.to(kind) if value.is_floating_point() else value
             for key, value in model.state_dict().items()}
    model.load_state_dict(state)
    return state


def write_safetensors(path, tensors):
    """By the format's own definition, for types that numpy lacks."""
    header, offset, data = {}, 0, b""
    for name, tensor in tensors.items():
        if tensor.dtype not in SAFETENSORS:
            continue
        words = {8: torch.int64, 4: torch.int32, 2: torch.int16}[tensor.element_size()]
        part = tensor.contiguous().view(words).numpy().tobytes()
        header[name] = {"dtype": SAFETENSORS[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + len(part)]}
        offset += len(part)
        data += part
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)


def scattered(state):
    """Every tensor a view with strides or an offset into a larger storage."""
    views = collections.OrderedDict()
    for key, value in state.items():
        if value.dim() >= 2:
            views[key] = value.transpose(0, 1).contiguous().transpose(0, 1)
        elif value.dim() == 1:
            views[key] = torch.stack([torch.full_like(value, 7), value], 1)[:, 1]
        else:
            views[key] = value
    flat = torch.cat([torch.zeros(3), views["fc.bias"]]) if "fc.bias" in views else None
    if flat is not None:
        views["fc.bias"] = flat[3:]
    return views


def sharded(path, state):
    names = list(state)
    files = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    folder = os.path.dirname(path)
    for file, part in files.items():
        write_safetensors(os.path.join(folder, file), {name: state[name] for name in part})
    kept = [(name, file) for file, part in files.items() for name in part
            if state[name].dtype in SAFETENSORS]
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"metadata": {}, "weight_map": dict(kept)}, file)


def as_published(state):
    """The names that the file of torchvision's DenseNets has."""
    return {re.sub(r"(denselayer\d+\.(?:norm|conv))([12])", r"\1.\2", key): value
            for key, value in state.items()}


def older(value, path, **settings):
    torch.save(value, path, _use_new_zipfile_serialization=False, **settings)


# Each takes the model and a path; those that round change the model.
WAYS = {
    "zip": lambda model, path: torch.save(model.state_dict(), path),
    "older": lambda model, path: older(model.state_dict(), path),
    "protocol 4": lambda model, path: torch.save(model.state_dict(), path, pickle_protocol=4),
    "older, protocol 5": lambda model, path: older(model.state_dict(), path, pickle_protocol=5),
    "nested as state_dict": lambda model, path: torch.save(
        {"epoch": 3, "state_dict": model.state_dict(), "best": torch.tensor(0.5)}, path),
    "nested as model with an optimizer": lambda model, path: torch.save(
        {"model": model.state_dict(), "args": collections.Counter(a=1),
         "optimizer": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9).state_dict()}, path),
    "data-parallel": lambda model, path: torch.save(
        {"module." + key: value for key, value in model.state_dict().items()}, path),
    "half": lambda model, path: torch.save(rounded(model, torch.float16), path),
    "bfloat16, older": lambda model, path: older(rounded(model, torch.bfloat16), path),
    "double": lambda model, path: torch.save(
        {key: value.double() for key, value in model.state_dict().items()}, path),
    "views": lambda model, path: torch.save(scattered(model.state_dict()), path),
    "views, older": lambda model, path: older(scattered(model.state_dict()), path),
    "channels last": lambda model, path: torch.save(
        model.to(memory_format=torch.channels_last).state_dict(), path),
    "parameters": lambda model, path: torch.save(
        {**dict(model.named_parameters()), **dict(model.named_buffers())}, path),
    "whole module": lambda model, path: torch.save(model, path),
    "whole module, older": lambda model, path: older(model, path),
    "whole data-parallel module": lambda model, path: torch.save(torch.nn.DataParallel(model), path),
    "scripted": lambda model, path: torch.jit.script(model).save(path),
    "published names": lambda model, path: older(as_published(model.state_dict()), path),
    "safetensors f64": lambda model, path: write_safetensors(
        path, {key: value.double() for key, value in model.state_dict().items()}),
    "safetensors f16": lambda model, path: write_safetensors(path, rounded(model, torch.float16)),
    "safetensors bf16": lambda model, path: write_safetensors(path, rounded(model, torch.bfloat16)),
    "safetensors in shards": lambda model, path: sharded(path, model.state_dict()),
}


def evaluate(program, name, weights, data):
    logits = program.file("logits.safetensors")
    program.run("eval", "--model", name, "--image", SIZE, "--classes", CLASSES, "--weights", weights,
                "--data", data, "--batch", 4, "--augment", "none", "--logits", logits,
                "--threads-per-device", 1)
    return safetensors_file.load(logits)[0]["logits"]


def main():
    arguments = reference.parser(__doc__).parse_args()
    torch.set_num_threads(1)
    program = reference.Program(arguments.program)
    generator = numpy.random.default_rng(arguments.seed)
    images = generator.integers(0, 256, (4, 3, SIZE, SIZE), dtype=numpy.uint8)
    data = program.save_images("images.safetensors", images, numpy.zeros(4))
    mean, deviation = reference.COLOUR
    batch = torch.tensor((images / 255 - mean) / deviation)
    comparison = reference.Comparison("logits with PyTorch's files", TOLERANCE)
    jobs = [("resnet18", way) for way in WAYS if way != "published names"]
    jobs += [("alexnet", "zip"), ("alexnet", "whole module, older"), ("resnet50", "half"),
             ("densenet121", "published names"), ("squeezenet1_1", "zip"),
             ("mobilenet_v2", "zip"), ("mobilenet_v3_large", "zip"), ("efficientnet_b0", "zip")]
    for number, (name, way) in enumerate(jobs):
        model = build(name, arguments.seed)
        ending = "index.json" if way == "safetensors in shards" else "pth"
        path = program.file(f"weights{number}.{ending}")
        WAYS[way](model, path)
        with torch.no_grad():
            expected = model.double()(batch)
        comparison.add(f"{name}, {way}", evaluate(program, name, path, data), expected)
        os.remove(path)
    reference.finish([comparison])


if __name__ == "__main__":
    main()
