#!/usr/bin/env python3
"""Compares networks as ONNX files with what Millrace computes, at batches of one and three.

Out: each model of --models (NAME or NAME:IMAGE), with batch norms kept and folded, is checked by
onnx.checker and run by OpenCV's dnn and, where it is installed, onnxruntime. In: each network of
--exported is exported by PyTorch, by every exporter that it has, and read by Millrace.
"""
import argparse
import os
import shutil
import subprocess
import sys

import numpy as np
import onnx

BOUND = 1e-4
failures = []


def compare(what, found, expected):
    """Largest difference, against the largest of the numbers where those are above 1."""
    if found.shape != expected.shape:
        failures.append(f"{what}: {found.shape} instead of {expected.shape}")
        return
    error = float(np.abs(found - expected).max()) / max(1.0, float(np.abs(expected).max()))
    print(f"{what}: {error:.1e}")
    if not error <= BOUND:
        failures.append(f"{what}: differs by {error:.2e}")


def run_opencv(path, images):
    import cv2
    network = cv2.dnn.readNetFromONNX(path)
    network.setInput(images)
    return network.forward()


def run_onnxruntime(path, images):
    import onnxruntime
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: images})[0]


def runners():
    found = [("opencv", run_opencv)]
    try:
        import onnxruntime
        found.append(("onnxruntime " + onnxruntime.__version__, run_onnxruntime))
    except ImportError:
        pass
    return found


def millrace(arguments, *words):
    done = subprocess.run([arguments.run, *map(str, words)], stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        failures.append(f"{' '.join(map(str, words[:2]))}: {done.stderr.strip()}")
    return done.returncode == 0


def check_out(arguments, model):
    name, _, image = model.partition(":")
    folder = os.path.join(arguments.work, name)
    if not millrace(arguments, "make", name, image or 0, folder):
        return
    kept = os.path.join(folder, "kept.onnx")
    shape = [d.dim_value for d in onnx.load(kept).graph.input[0].type.tensor_type.shape.dim][1:]
    images = np.fromfile(os.path.join(folder, "input.f32"), np.float32).reshape(-1, *shape)
    expected = np.fromfile(os.path.join(folder, "output.f32"), np.float32).reshape(len(images), -1)
    for form in ("kept", "folded"):
        path = os.path.join(folder, form + ".onnx")
        onnx.checker.check_model(path, full_check=True)
        has_norms = any(node.op_type == "BatchNormalization" for node in onnx.load(path).graph.node)
        if form == "kept" and "bn" in " ".join(t.name for t in onnx.load(path).graph.initializer):
            if not has_norms:
                failures.append(f"{name}: kept.onnx has no batch norms")
        for program, run in runners():
            for batch in (1, 3):
                compare(f"{name} {form} by {program}, batch {batch}", run(path, images[:batch]),
                        expected[:batch])
        read_back(arguments, path, images, expected, f"{name} {form} read back")
    shutil.rmtree(folder)


def read_back(arguments, path, images, expected, what):
    folder = os.path.dirname(path)
    for batch in (1, 3):
        given, found = os.path.join(folder, "given.f32"), os.path.join(folder, "found.f32")
        images[:batch].astype(np.float32).tofile(given)
        if millrace(arguments, "run", path, given, found):
            compare(f"{what}, batch {batch}",
                    np.fromfile(found, np.float32).reshape(batch, -1), expected[:batch])


def iresnet():
    """A network of InsightFace's kind, small: norms first, PReLU, an embedding at the end."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, before, after, stride):
            super().__init__()
            self.bn1 = nn.BatchNorm2d(before, eps=1e-5)
            self.conv1 = nn.Conv2d(before, after, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(after)
            self.prelu = nn.PReLU(after)
            self.conv2 = nn.Conv2d(after, after, 3, stride, 1, bias=False)
            self.bn3 = nn.BatchNorm2d(after)
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False),
                                            nn.BatchNorm2d(after))

        def forward(self, x):
            y = self.bn3(self.conv2(self.prelu(self.bn2(self.conv1(self.bn1(x))))))
            return y + self.downsample(x)

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(16)
            self.prelu = nn.PReLU(16)
            self.layer1 = nn.Sequential(Block(16, 24, 2))
            self.layer2 = nn.Sequential(Block(24, 32, 2))
            self.bn2 = nn.BatchNorm2d(32)
            self.dropout = nn.Dropout(0.4)
            self.fc = nn.Linear(32 * 28 * 28, 64)
            self.features = nn.BatchNorm1d(64)

        def forward(self, x):
            x = self.layer2(self.layer1(self.prelu(self.bn1(self.conv1(x)))))
            return self.features(self.fc(torch.flatten(self.dropout(self.bn2(x)), 1)))

    return Network(), 112


def products():
    """Means and products written out, gates, and windows that round up: nodes that layers hide."""
    import torch
    from torch import nn

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 12, 3, 2, 1, dilation=2, groups=3)
            self.gate = nn.Conv2d(12, 12, 1)
            self.weight = nn.Parameter(torch.randn(24, 20))
            self.bias = nn.Parameter(torch.randn(20))

        def forward(self, x):
            x = nn.functional.hardswish(self.conv(x))
            x = nn.functional.max_pool2d(x, 3, 2, ceil_mode=True)
            x = x * torch.sigmoid(self.gate(x.mean((2, 3), keepdim=True)))
            x = torch.cat([nn.functional.silu(x), nn.functional.relu6(x)], 1).mean((2, 3))
            return x @ self.weight + self.bias

    return Network(), 64


def make_network(name):
    import torch
    import torchvision
    torch.manual_seed(1)
    if name in ("iresnet", "products"):
        network, image = iresnet() if name == "iresnet" else products()
    else:
        network, image = getattr(torchvision.models, name)(num_classes=20), 64
        if name in ("alexnet", "vgg11", "vgg16", "vgg16_bn"):
            image = 224
    for module in network.modules():
        if isinstance(module, (torch.nn.BatchNorm2d, torch.nn.BatchNorm1d)):
            torch.nn.init.uniform_(module.running_mean, -0.2, 0.2)
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.uniform_(module.bias, -0.2, 0.2)
    return network.eval(), image


def exporters():
    """Names of ways to export, with the function that does it."""
    import torch

    def legacy(network, example, path, dynamic):
        axes = {"input": {0: "batch"}} if dynamic else None
        keywords = {"dynamo": False} if torch.__version__ >= "2.5" else {}
        torch.onnx.export(network, example, path, input_names=["input"], dynamic_axes=axes,
                          opset_version=14, **keywords)

    def unfolded(network, example, path, dynamic):
        keywords = {"dynamo": False} if torch.__version__ >= "2.5" else {}
        torch.onnx.export(network, example, path, input_names=["input"], opset_version=14,
                          training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False,
                          **keywords)

    def dynamo(network, example, path, dynamic, external=False):
        shapes = ({0: torch.export.Dim("batch")},) if dynamic else None
        torch.onnx.export(network, (example,), path, dynamo=True, dynamic_shapes=shapes,
                          external_data=external)

    ways = [("legacy", lambda *a: legacy(*a, False)), ("legacy open", lambda *a: legacy(*a, True)),
            ("legacy unfolded", lambda *a: unfolded(*a, False))]
    if int(torch.__version__.split(".")[0]) >= 2:
        ways += [("dynamo", lambda *a: dynamo(*a, False)),
                 ("dynamo open", lambda *a: dynamo(*a, True)),
                 ("dynamo external", lambda *a: dynamo(*a, False, True))]
    return ways


def check_in(arguments, name):
    import torch
    network, image = make_network(name)
    images = torch.randn(3, 3, image, image, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        expected = network(images).numpy()
    folder = os.path.join(arguments.work, "torch-" + name)
    os.makedirs(folder, exist_ok=True)
    for way, write in exporters():
        path = os.path.join(folder, way.replace(" ", "-") + ".onnx")
        # Two images: a batch of one is a special number to some exporters.
        write(network, images[:2] if "open" in way else images[:1], path)
        read_back(arguments, path, images.numpy(), expected,
                  f"{name} by torch {torch.__version__} {way}")
        if arguments.keep:
            continue
        os.remove(path)
    if not arguments.keep:
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", required=True, help="the program onnx_run")
    parser.add_argument("--work", required=True)
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--exported", nargs="*", default=[])
    parser.add_argument("--keep", action="store_true", help="leave the exported files")
    arguments = parser.parse_args()
    os.makedirs(arguments.work, exist_ok=True)
    for model in arguments.models:
        check_out(arguments, model)
    for name in arguments.exported:
        check_in(arguments, name)
    for failure in failures:
        print("FAILED", failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
