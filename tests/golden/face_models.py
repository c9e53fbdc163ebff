"""The face networks in PyTorch, with the names and shapes of InsightFace's models.

Each ends in an embedding of 512; `classes` adds a linear layer `head` behind it.
"""

from torch import nn

EMBEDDING = 512
DEPTHS = {"iresnet18": (2, 2, 2, 2), "iresnet34": (3, 4, 6, 3), "iresnet50": (3, 4, 14, 3),
          "iresnet100": (3, 13, 30, 3), "iresnet200": (6, 26, 60, 6)}
NAMES = [*DEPTHS, "mobilefacenet"]


class FaceNetwork(nn.Module):
    def add_head(self, classes):
        self.head = nn.Linear(EMBEDDING, classes) if classes else nn.Identity()

    def forward(self, images):
        return self.head(self.embed(images))


class IBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.prelu = nn.PReLU(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                            nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.prelu(self.bn2(self.conv1(self.bn1(x))))
        return self.bn3(self.conv2(y)) + (x if self.downsample is None else self.downsample(x))

    def last_norm(self):
        return self.bn3


class IResNet(FaceNetwork):
    def __init__(self, depths, image, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.prelu = nn.PReLU(64)
        inputs, side = 64, image
        for stage, depth in enumerate(depths):
            outputs, blocks = 64 << stage, []
            for index in range(depth):
                blocks.append(IBlock(inputs, outputs, 2 if index == 0 else 1))
                inputs = outputs
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
            side = (side + 1) // 2
        self.bn2 = nn.BatchNorm2d(inputs)
        self.fc = nn.Linear(inputs * side * side, EMBEDDING)
        self.features = nn.BatchNorm1d(EMBEDDING)
        self.features.weight.requires_grad = False
        self.add_head(classes)

    def embed(self, images):
        x = self.prelu(self.bn1(self.conv1(images)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.features(self.fc(self.bn2(x).flatten(1)))


class Nested(nn.Module):
    """Layers in a row, optionally with a short cut around them."""

    def __init__(self, *layers, residual=False):
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.residual = residual

    def forward(self, x):
        return self.layers(x) + x if self.residual else self.layers(x)

    def last_norm(self):
        return self.layers[2].layers[1] if self.residual else None


def linear_block(inputs, outputs, kernel=1, stride=1, padding=0, groups=1, active=()):
    return Nested(nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False),
                  nn.BatchNorm2d(outputs), *active)


def active_block(inputs, outputs, *shape, groups=1):
    return linear_block(inputs, outputs, *shape, groups=groups, active=(nn.PReLU(outputs),))


def by_channel(inputs, inner, outputs, stride, residual=False):
    return Nested(active_block(inputs, inner), active_block(inner, inner, 3, stride, 1, groups=inner),
                  linear_block(inner, outputs), residual=residual)


def residual_blocks(channels, count, inner):
    return Nested(*(by_channel(channels, inner, channels, 1, residual=True) for _ in range(count)))


class MobileFaceNet(FaceNetwork):
    def __init__(self, image, classes):
        super().__init__()
        self.layers = nn.Sequential(
            active_block(3, 128, 3, 2, 1), active_block(128, 128, 3, 1, 1, groups=64),
            by_channel(128, 128, 128, 2), residual_blocks(128, 4, 128),
            by_channel(128, 256, 256, 2), residual_blocks(256, 6, 256),
            by_channel(256, 512, 256, 2), residual_blocks(256, 2, 256))
        self.conv_sep = active_block(256, 512)
        side = -(-image // 16)
        self.features = Nested(linear_block(512, 512, side, groups=512), nn.Flatten(),
                               nn.Linear(512, EMBEDDING, bias=False), nn.BatchNorm1d(EMBEDDING))
        self.add_head(classes)

    def embed(self, images):
        return self.features(self.conv_sep(self.layers(images)))


def build(name, image=112, classes=0):
    if name == "mobilefacenet":
        return MobileFaceNet(image, classes)
    return IResNet(DEPTHS[name], image, classes)


def small_start(model, low, high):
    """Starts the last norm of each residual branch with a small scale."""
    for module in model.modules():
        norm = module.last_norm() if isinstance(module, (IBlock, Nested)) else None
        if norm is not None:
            nn.init.uniform_(norm.weight, low, high)
