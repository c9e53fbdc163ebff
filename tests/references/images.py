#!/usr/bin/python3
"""What the loader makes of image files against PIL and torchvision on the same files: decoding,
cropping, resizing, normalising, with every recipe. Differences are in levels of 255.

There are two references: torchvision on floats (antialiased), which rounds as little as Millrace
does, and PIL's own resizing, which rounds to bytes after each direction, as most training does.
"""

import os
import subprocess
import sys

import numpy
import torch
import torchvision.transforms.functional as F
from PIL import Image
from torchvision.transforms import InterpolationMode

import reference
import safetensors_file
from image_files import KINDS, load

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
FACE = ((0.5,) * 3, (0.5,) * 3)
GREY = ((0.286,), (0.353,))
NORMS = {"photo": IMAGENET, "face": FACE, "small": IMAGENET}


def norm(recipe, channels):
    recipe = recipe.split("-")[0]
    return GREY if recipe == "small" and channels == 1 else NORMS[recipe]


DRAWS = 6
SHIFTS = 500  # draws of one picture

# Against floats, against PIL's bytes (one level of rounding in each direction), and the mean over
# an image of what training does to JPEG: chroma repeated and DCT-scaled, for speed.
FLOATS, BYTES, FAST_JPEG = 0.005, 1.1, 2.5


class Levels:
    """The largest of a kind of difference, and where it was."""

    def __init__(self, title, allowed):
        self.title, self.allowed, self.worst, self.count, self.where = title, allowed, 0.0, 0, "none"

    def add(self, difference, where):
        self.count += 1
        if not difference <= self.worst:
            self.worst, self.where = difference, where

    def finish(self):
        good = self.count > 0 and self.worst <= self.allowed
        print(f"{self.title}: {self.count} compared, worst {self.worst:.4f} levels ({self.where}), "
              f"allowed {self.allowed}{'' if good else '  WRONG'}", flush=True)
        return good


def as_floats(image):
    values = torch.from_numpy(numpy.array(image, numpy.float32))
    return values.permute(2, 0, 1) if values.dim() == 3 else values[None]


def evaluated(image, recipe, size, resize):
    """Resized and cropped as torchvision's evaluation does."""
    if recipe != "photo":
        return resize(image, [size, size])
    return F.center_crop(resize(image, [size * 8 // 7]), [size, size])


def float_resize(image, size):
    return F.resize(image, size, InterpolationMode.BILINEAR, antialias=True)


def byte_resize(image, size):
    return F.resize(image, size, InterpolationMode.BILINEAR)


def shifts(picture, padding):
    """The picture moved by up to `padding` over black, flipped or not."""
    size = picture.shape[-1]
    for flipped in (picture, picture.flip(-1)):
        wide = torch.nn.functional.pad(flipped, (padding,) * 4)
        for y in range(2 * padding + 1):
            for x in range(2 * padding + 1):
                yield wide[:, y:y + size, x:x + size]


def compare_shifts(recipe):
    """Whether moves and flips of one picture are all as likely as each other."""
    padding = recipe.size // 14
    picture = float_resize(as_floats(recipe.decoded(0)), [recipe.size, recipe.size])
    alternatives = torch.stack(list(shifts(picture, padding)))
    width = 2 * padding + 1
    counts = torch.zeros(2, width, width)
    for draw in range(recipe.draws):
        place = (alternatives - recipe.levels(0, draw)).abs().flatten(1).amax(1).argmin()
        counts.view(-1)[place] += 1
    good = True
    for what, drawn in (("flips", counts.sum((1, 2))), ("moves up", counts.sum((0, 2))),
                        ("moves left", counts.sum((0, 1)))):
        wanted = recipe.draws / len(drawn)
        allowed = 5 * (wanted * (1 - 1 / len(drawn))) ** 0.5
        even = bool(((drawn - wanted).abs() <= allowed).all())
        good = good and even
        print(f"{what}: {drawn.int().tolist()} of {recipe.draws}, each {wanted:.0f} by right, allowed "
              f"{allowed:.0f} more or less{'' if even else '  WRONG'}")
    return good


class Recipe:
    def __init__(self, program, files, name, size, channels, draws):
        self.name, self.size, self.channels, self.draws = name, size, channels, draws
        output = os.path.join(os.path.dirname(files[0]), "transformed.safetensors")
        subprocess.run([program, output, name, str(size), str(channels), str(draws), *files],
                       check=True)
        self.tensors = safetensors_file.load(output)[0]
        self.images = [load(path, "RGB" if channels == 3 else "L") for path in files]

    def levels(self, index, draw):
        """What Millrace made, on the scale of bytes."""
        mean, deviation = norm(self.name, self.channels)
        pixels = torch.from_numpy(self.tensors[f"{index}/{draw}/pixels"].copy()).double()
        shape = (self.channels, 1, 1)
        return 255 * (pixels * torch.tensor(deviation[:self.channels]).reshape(shape)
                      + torch.tensor(mean[:self.channels]).reshape(shape))

    def decoded(self, index):
        return self.tensors[f"{index}/decoded"].squeeze()


def largest(actual, expected):
    return (actual - expected).abs().max().item()


def compare_decoding(recipe, grey):
    levels = Levels(f"decoded to {'grey' if grey else 'colour'}", 0)
    for index, kind in enumerate(KINDS):
        expected = numpy.asarray(recipe.images[index], numpy.float64)
        levels.add(numpy.abs(recipe.decoded(index) - expected).max(), kind.name)
    return levels.finish()


def compare_evaluation(recipe, floats, to_bytes):
    for index, kind in enumerate(KINDS):
        where = f"{recipe.name}, {kind.name}"
        own = recipe.levels(index, 0)
        # From Millrace's own decoded bytes, which are compared apart.
        decoded = as_floats(recipe.decoded(index))
        floats.add(largest(own, evaluated(decoded, recipe.name, recipe.size, float_resize)), where)
        image = Image.fromarray(recipe.decoded(index).astype(numpy.uint8))
        rounded = evaluated(image, recipe.name, recipe.size, byte_resize)
        to_bytes.add(largest(own, as_floats(rounded)), where)


def compare_training(recipe, floats, fast):
    """The region is told; flips and shifts are whichever fit."""
    for index, kind in enumerate(KINDS):
        decoded = as_floats(recipe.decoded(index))
        for draw in range(recipe.draws):
            own = recipe.levels(index, draw)
            left, top, width, height = self_region = recipe.tensors[f"{index}/{draw}/region"]
            part = decoded[:, int(top):int(top + height + 0.999), int(left):int(left + width + 0.999)]
            if recipe.name == "photo-training" and any(value % 1 for value in self_region):
                continue  # an image too long or too high: its middle, not on whole pixels
            picture = float_resize(part, [recipe.size, recipe.size])
            padding = max(1, recipe.size // 14) if recipe.name == "small-training" else 0
            where = f"{recipe.name}, {kind.name}, draw {draw}"
            differences = [(own - one).abs() for one in shifts(picture, padding)]
            if recipe.name == "photo-training" and kind.name.endswith(".jpg"):
                fast.add(min(one.mean().item() for one in differences), where)
            else:
                floats.add(min(one.max().item() for one in differences), where)


def compare_crops(recipe, size, crops):
    """Each of the ten, which torchvision lists in the same order."""
    for view in range(10):
        own = recipe(f"photo-view-{view}", size)
        for index, kind in enumerate(KINDS):
            whole = float_resize(as_floats(own.decoded(index)), [size * 8 // 7])
            crops.add(largest(own.levels(index, 0), F.ten_crop(whole, size)[view]), f"crop {view}, {kind.name}")


def main():
    parser = reference.parser(__doc__)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    home = reference.Program(arguments.program)
    generator = numpy.random.default_rng(arguments.seed)
    files = [kind.write(home.home.name, generator) for kind in KINDS]

    def recipe(name, size, channels=3, draws=1):
        return Recipe(home.path, files, name, size, channels, draws)

    floats = Levels("evaluation against torchvision on floats", FLOATS)
    to_bytes = Levels("evaluation against PIL's bytes", BYTES)
    training = Levels("training against torchvision on floats", FLOATS)
    fast = Levels("training on JPEG, mean of an image", FAST_JPEG)
    photo, grey = recipe("photo", 96), recipe("small", 28, channels=1)
    good = [compare_decoding(photo, False), compare_decoding(grey, True)]
    for one in (photo, grey, recipe("photo", 224), recipe("small", 32), recipe("face", 112)):
        compare_evaluation(one, floats, to_bytes)
    for one in (recipe("photo-training", 64, draws=DRAWS), recipe("face-training", 112, draws=DRAWS),
                recipe("small-training", 28, channels=1, draws=DRAWS)):
        compare_training(one, training, fast)
    crops = Levels("ten crops against torchvision on floats", FLOATS)
    compare_crops(recipe, 96, crops)
    good.append(compare_shifts(Recipe(home.path, files[:1], "small-training", 28, 1, SHIFTS)))
    good += [levels.finish() for levels in (floats, to_bytes, crops, training, fast)]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
