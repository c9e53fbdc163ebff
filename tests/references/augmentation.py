#!/usr/bin/python3
"""Changes of training images against torchvision: every operation of RandAugment on the same bytes,
each change of colour with the factor that was drawn, and how factors are spread; the rectangles of
random erasing and of random crops by their statistics."""

import subprocess
import sys

import numpy
import torch
from torchvision.transforms import RandAugment, RandomErasing, RandomResizedCrop
from torchvision.transforms.autoaugment import _apply_op
from torchvision.transforms import InterpolationMode
from torchvision.transforms.functional import adjust_brightness, adjust_contrast, adjust_saturation

import reference
import safetensors_file

HEIGHT, WIDTH, IMAGES, DRAWS = 37, 44, 3, 4000
# Where a pixel comes from half-way between two, rounding may choose either.
MOVING = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")
EQUAL_SHARE = 0.995
JITTER = 0.6
CHANGES = {"brightness": adjust_brightness, "contrast": adjust_contrast, "saturation": adjust_saturation}


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


def compare_colours(image, changed, failures):
    """Each change is linear in its factor where nothing is clamped, which gives the factor away."""
    original = torch.from_numpy(image.transpose(2, 0, 1) / 255.0)
    for name, adjust in CHANGES.items():
        if name == "saturation" and len(original) == 1:
            continue
        nothing, all_ = adjust(original, 0.0), original
        factors = []
        for drawn in changed[name].astype(numpy.float64):
            drawn = torch.from_numpy(drawn.transpose(2, 0, 1) / 255)
            inside = (drawn > 0) & (drawn < 1)
            slope, rise = (all_ - nothing)[inside], (drawn - nothing)[inside]
            factors.append(((slope * rise).sum() / (slope * slope).sum()).item())
            worst = (adjust(original, factors[-1]) - drawn).abs().max().item()
            if worst > 1e-4:  # torchvision has 0.2989 for the red of grey
                failures.append(f"{name} by {factors[-1]:.4f}: {worst} off")
        factors = (numpy.array(factors) - (1 - JITTER)) / (2 * JITTER)
        error = 5 / (12 * len(factors)) ** 0.5
        if factors.min() < -1e-4 or factors.max() > 1 + 1e-4 or abs(factors.mean() - 0.5) > error or \
                abs(factors.std() * 12 ** 0.5 - 1) > 0.2:
            failures.append(f"{name}: factors from {factors.min():.3f} to {factors.max():.3f} of their span, "
                            f"mean {factors.mean():.3f}, deviation {factors.std():.3f}")


def erased(image):
    return RandomErasing.get_params(image, (0.02, 0.33), (0.3, 3.3), [0.0])[:4]


def cropped(image):
    return RandomResizedCrop.get_params(image, (0.08, 1.0), (3 / 4, 4 / 3))


def uneven(places, room):
    """What is wrong with places that should be anywhere from 0 to `room`, each as likely as any other."""
    choices = room + 1.0
    if (places < 0).any() or (places > room).any():
        return "leave the image"
    middle, variance = ((places + 0.5) / choices).mean(), ((choices ** 2 - 1) / (12 * choices ** 2)).mean()
    if abs(middle - 0.5) > 5 * (variance / len(places)) ** 0.5:
        return f"lie at {middle:.3f} of their room in the mean"
    error = 5 * (1 / choices * (1 - 1 / choices)).sum() ** 0.5 + 1e-9
    for edge, count in (("first", (places == 0).sum()), ("last", (places == room).sum())):
        if abs(count - (1 / choices).sum()) > error:
            return f"are the {edge} one {count} times instead of {(1 / choices).sum():.0f}"
    return ""


def compare_rectangles(title, mine, draw, failures):
    """How large: mean and deviation against torchvision's own draws. Where: anywhere that there is room."""
    torch.manual_seed(5)
    image = torch.zeros(3, HEIGHT, WIDTH)
    theirs = numpy.array([draw(image) for _ in range(DRAWS)], numpy.float64)[:, [1, 0, 3, 2]]
    mine = mine.astype(numpy.float64)
    for column, what in enumerate(("left", "top", "width", "height")):
        own, other = mine[:, column], theirs[:, column]
        error = 5 * other.std() * (2 / DRAWS) ** 0.5
        if abs(own.mean() - other.mean()) > error or abs(own.std() / other.std() - 1) > 0.08:
            failures.append(f"{title}: {what} has mean {own.mean():.2f}, deviation {own.std():.2f} "
                            f"instead of {other.mean():.2f}, {other.std():.2f}")
    for column, what, extent in ((0, "left", WIDTH), (1, "top", HEIGHT)):
        for whose, drawn in (("torchvision's", theirs), ("ours", mine)):
            fault = uneven(drawn[:, column], extent - drawn[:, column + 2])
            if fault:
                failures.append(f"{title}: {what}s of {whose} {fault}")


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
        compare_colours(images[0], changed, failures)
    compare_rectangles("erasing", changed["erased"], erased, failures)
    compare_rectangles("crops", changed["cropped"], cropped, failures)
    print(f"{len(operations())} operations, both signs, two strengths, colour and grey; "
          f"{len(changed['contrast'])} factors of each colour change; {DRAWS} parts erased, as many cropped")
    for failure in failures:
        print(f"  WRONG: {failure}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
