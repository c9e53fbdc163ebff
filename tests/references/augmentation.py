#!/usr/bin/python3
"""Changes of training images against torchvision: every operation of RandAugment on the same bytes,
the rectangles of random erasing by their statistics."""

import subprocess
import sys

import numpy
import torch
from torchvision.transforms import RandAugment, RandomErasing
from torchvision.transforms.autoaugment import _apply_op
from torchvision.transforms import InterpolationMode

import reference
import safetensors_file

HEIGHT, WIDTH, IMAGES, DRAWS = 37, 44, 3, 4000
# Where a pixel comes from half-way between two, rounding may choose either.
MOVING = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")
EQUAL_SHARE = 0.995


def operations():
    return list(RandAugment()._augmentation_space(31, (HEIGHT, WIDTH)))


def expected(name, images, magnitude, negative):
    """By torchvision's own function, with the strength that its RandAugment gives it."""
    strengths, signed = RandAugment()._augmentation_space(31, (HEIGHT, WIDTH))[name]
    strength = float(strengths[magnitude].item()) if strengths.ndim > 0 else 0.0
    strength = -strength if negative and signed else strength
    tensors = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
    changed = torch.stack([_apply_op(one, name, strength, InterpolationMode.NEAREST, None)
                           for one in tensors])
    return changed.numpy().transpose(0, 2, 3, 1)


def own(program, images, magnitude):
    source, target = program.file("images.safetensors"), program.file("changed.safetensors")
    safetensors_file.save(source, {"images": images.astype(numpy.float32)})
    subprocess.run([program.path, source, target, str(magnitude), str(DRAWS)], check=True)
    return safetensors_file.load(target)[0]


def compare_operations(program, images, magnitude, failures):
    changed = own(program, images, magnitude)
    for name in operations():
        for sign, negative in (("+", False), ("-", True)):
            wanted = expected(name, images, magnitude, negative).astype(numpy.float64)
            same = (changed[name + sign] == wanted).mean()
            largest = numpy.abs(changed[name + sign] - wanted).max()
            good = same >= EQUAL_SHARE if name in MOVING else largest <= 1 and same >= EQUAL_SHARE
            if not good:
                failures.append(f"{name}{sign} at {magnitude}, {images.shape[3]} colours: {same:.4f} of "
                                f"the levels are equal, largest difference {largest}")
    return changed


def compare_erasing(erased, failures):
    """Mean and deviation of where and how large, against torchvision's own draws."""
    torch.manual_seed(5)
    image = torch.zeros(3, HEIGHT, WIDTH)
    theirs = []
    for _ in range(DRAWS):
        top, left, height, width, _ = RandomErasing.get_params(image, (0.02, 0.33), (0.3, 3.3), [0.0])
        theirs.append((left, top, width, height))
    theirs = numpy.array(theirs, numpy.float64)
    for column, what in enumerate(("left", "top", "width", "height")):
        mine, other = erased[:, column].astype(numpy.float64), theirs[:, column]
        error = 5 * other.std() * (2 / DRAWS) ** 0.5
        if abs(mine.mean() - other.mean()) > error or abs(mine.std() / other.std() - 1) > 0.08:
            failures.append(f"erasing: {what} has mean {mine.mean():.2f}, deviation {mine.std():.2f} "
                            f"instead of {other.mean():.2f}, {other.std():.2f}")


def main():
    arguments = reference.parser(__doc__).parse_args()
    torch.set_num_threads(1)
    program = reference.Program(arguments.program)
    generator = numpy.random.default_rng(arguments.seed)
    failures = []
    for colours in (3, 1):
        # Smooth pictures with noise, one of few levels.
        images = generator.integers(0, 256, (IMAGES, HEIGHT, WIDTH, colours))
        images[0] = (images[0] // 4 + numpy.linspace(20, 150, WIDTH)[:, None]).astype(int)
        images[1] = images[1] // 80 * 40 + 60
        for magnitude in (9, 23):
            changed = compare_operations(program, images.astype(numpy.uint8), magnitude, failures)
    compare_erasing(changed["erased"], failures)
    print(f"{len(operations())} operations, both signs, two strengths, colour and grey; {DRAWS} erased parts")
    for failure in failures:
        print(f"  WRONG: {failure}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
