"""Every network by Millrace's name, as PyTorch has it: torchvision's, and ours in torch's modules.

Normalisation layers and biases start from random values, not from ones and zeros, so that mixed-up
names show; residual branches start small, which keeps gradients tame. Dropout is off.
"""

import torch
import torchvision
from torch import nn
from torchvision.models.resnet import BasicBlock, Bottleneck
from torchvision.ops import StochasticDepth

import face_models

TORCHVISION = ["alexnet", "vgg16", "vgg16_bn",
               "resnet18", "resnet34", "resnet50", "resnet101", "resnet152",
               "resnext50_32x4d", "wide_resnet50_2", "densenet121", "squeezenet1_1",
               "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0"]
NAMES = [*TORCHVISION, "fashion_cnn", *face_models.NAMES]
RESIDUAL_SCALE = (0.1, 0.3)


class FashionCnn(nn.Module):
    """The small network for grey images, of torchvision's blocks."""

    def __init__(self, classes, channels=1):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 32, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(32)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(2, 2)
        self.layer1 = nn.Sequential(BasicBlock(32, 32))
        self.layer2 = nn.Sequential(self.halving(32, 64))
        self.layer3 = nn.Sequential(self.halving(64, 128))
        self.fc = nn.Linear(128, classes)

    @staticmethod
    def halving(inputs, outputs):
        shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, 2, bias=False),
                                 nn.BatchNorm2d(outputs))
        return BasicBlock(inputs, outputs, 2, shortcut)

    def forward(self, images):
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


def plain(name, image, classes):
    if name == "fashion_cnn":
        return FashionCnn(classes)
    if name in face_models.NAMES:
        return face_models.build(name, image, classes)
    return getattr(torchvision.models, name)(weights=None, num_classes=classes)


# Where the slope of an activation jumps.
KINKS = {nn.ReLU: (0,), nn.PReLU: (0,), nn.ReLU6: (0, 6), nn.Hardswish: (-3, 3),
         nn.Hardsigmoid: (-3, 3)}


def keep_off_kinks(model, images, margin=5e-5):
    """Moves biases a little, so that on this batch no activation has an input within `margin` of a
    kink (in deviations): there rounding may decide either way, and one decision shows in a gradient."""
    last = []

    def remember(module, *_):
        last[:] = [module]

    def move(module, inputs):
        values = inputs[0].detach().transpose(0, 1).flatten(1)
        values = torch.cat([values - kink for kink in KINKS[type(module)]], 1)
        gap = margin * inputs[0].detach().std()
        shift = torch.zeros_like(values[:, 0])
        while (near := (values + shift[:, None]).abs().amin(1) < gap).any():
            shift[near] += 3 * gap
        last[0].bias.data += shift
        return inputs[0] + shift.reshape(-1, *[1] * (inputs[0].dim() - 2))

    hooks = []
    for module in model.modules():
        if getattr(module, "bias", None) is not None:
            hooks.append(module.register_forward_hook(remember))
        elif type(module) in KINKS:
            hooks.append(module.register_forward_pre_hook(move))
    with torch.no_grad():
        model(images)
    for hook in hooks:
        hook.remove()


def build(name, image, classes, seed):
    torch.manual_seed(seed)
    model = plain(name, image, classes)
    for module in model.modules():
        if isinstance(module, (nn.Dropout, StochasticDepth)):
            module.p = 0.0
        elif isinstance(module, (nn.BatchNorm2d, nn.BatchNorm1d)):
            if module.weight.requires_grad:
                nn.init.uniform_(module.weight, 0.8, 1.2)
            nn.init.normal_(module.bias, std=0.1)
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.8, 1.2)
        elif isinstance(module, nn.PReLU):
            nn.init.uniform_(module.weight, 0.1, 0.4)
        elif isinstance(module, (nn.Conv2d, nn.Linear)) and module.bias is not None:
            nn.init.normal_(module.bias, std=0.02)
    for module in model.modules():
        if isinstance(module, (BasicBlock, Bottleneck)):
            last = module.bn3 if isinstance(module, Bottleneck) else module.bn2
            nn.init.uniform_(last.weight, *RESIDUAL_SCALE)
    face_models.small_start(model, *RESIDUAL_SCALE)
    return model
