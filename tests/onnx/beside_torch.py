"""Millrace and the PyTorch of today in one process: weights both ways, and files of its exporters trained further.

Run by tools/check-onnx, with pytest."""
import os
import time

import numpy as np
import pytest
import torch
import torchvision

import millrace as mr

NAMES = ["resnet18", "mobilenet_v2", "densenet121", "resnext50_32x4d", "wide_resnet50_2", "squeezenet1_1"]


def network_of(name, classes=5):
    torch.manual_seed(3)
    network = getattr(torchvision.models, name)(num_classes=classes).eval()
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_mean, -0.2, 0.2)
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
    return network


def pictures(count, size, seed=1):
    return np.random.default_rng(seed).integers(0, 256, (count, size, size, 3), np.uint8)


def normalised(images):
    values = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return (values - mean[:, None, None]) / deviation[:, None, None]


@pytest.mark.parametrize("name", NAMES)
def test_a_state_dictionary_is_recognised_and_goes_back(name):
    network = network_of(name)
    model = mr.from_torch(network.state_dict(), image=64)
    assert model.name == name and model.classes == 5
    again = network_of(name, classes=5)
    for parameter in again.parameters():
        torch.nn.init.zeros_(parameter)
    again.load_state_dict({key: torch.from_numpy(value) for key, value in model.state.items()}, strict=True)
    for key, value in network.state_dict().items():
        if value.is_floating_point():
            assert torch.equal(value, again.state_dict()[key]), key


def test_scores_are_those_of_torch():
    network = network_of("resnet18")
    images = pictures(3, 64)  # of the network's size: they are normalised and nothing else
    with torch.no_grad():
        expected = network(normalised(images)).numpy()
    found = mr.from_torch(network.state_dict(), image=64).predict(images)
    np.testing.assert_allclose(found, expected, atol=1e-4 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("way", ["legacy", "dynamo"])
def test_exported_networks_are_trained_further(way, tmp_path):
    network, file = network_of("resnet18", classes=7), tmp_path / "net.onnx"
    example = torch.randn(1, 3, 48, 48)
    if way == "legacy":
        torch.onnx.export(network, example, file, dynamo=False)
    else:
        torch.onnx.export(network, (example,), file, dynamo=True, external_data=True)
    images = pictures(32, 48)
    labels = np.arange(32) % 2
    images[labels == 1] //= 3
    data = mr.data(images=images, labels=labels, augment="none")
    model = mr.model(f"onnx:{file}", classes=2)
    run = mr.Job(model, data.train, batch=16, steps=8, lr=0.01).train()
    assert run.losses[-1] < 0.5 * run.losses[0], run.losses
    assert run.last.evaluate(data.train).samples == 32


def test_tensors_are_borrowed_by_dlpack():
    images = torch.from_numpy(pictures(8, 32))
    data = mr.data(images=images, labels=torch.arange(8) % 2)
    assert data.classes == 2
    with pytest.raises(mr.InputError, match="Pictures must be uint8"):
        mr.data(images=images.float(), labels=torch.arange(8))


def test_neither_keeps_its_threads_in_the_others_turn():
    """More threads than cores would have OpenMP put them to sleep whenever they wait for each other."""
    torch.set_num_threads(4)
    data = mr.data(images=pictures(32, 32), labels=np.arange(32) % 2, augment="none")
    job = mr.Job(mr.model("fashion_cnn", channels=3, image=32, classes=2), data.train, batch=16, steps=12, threads=2)

    def threads():
        return len(os.listdir("/proc/self/task"))

    def train(then):
        found = []

        def on_step(report):
            found.append(threads())
            then()
            found.append(threads())

        job.train(on_step=on_step)
        # The fewest: on a busy machine Millrace has some more now and then.
        return min(found[2::2]), min(found[1::2])

    alone, _ = train(lambda: None)
    matrix = torch.ones(600, 600)
    began, computed = train(lambda: matrix @ matrix)
    assert began <= alone <= computed
    assert train(lambda: time.sleep(0.05))[1] == alone - 1
