"""Image files to compare on: every kind that photographs come in, drawn and written by PIL."""

import os

import numpy
from PIL import Image, ImageOps


def picture(generator, width, height, bands=3):
    """Large soft shapes with some grain."""
    coarse = generator.integers(0, 256, (7, 7, bands), numpy.uint8)
    layers = [Image.fromarray(coarse[:, :, band]).resize((width, height), Image.BICUBIC)
              for band in range(bands)]
    pixels = numpy.stack([numpy.asarray(layer, numpy.float64) for layer in layers], -1)
    pixels = numpy.clip(pixels + generator.normal(0, 12, pixels.shape), 0, 255).astype(numpy.uint8)
    return pixels[:, :, 0] if bands == 1 else pixels


def load(path, mode):
    """The image as it is seen: turned as its EXIF data says."""
    return ImageOps.exif_transpose(Image.open(path)).convert(mode)


class Kind:
    """One file; `turn` is EXIF's orientation."""

    def __init__(self, name, size, mode="RGB", turn=None, **options):
        self.name, self.size, self.mode, self.options = name, size, mode, options
        if turn:
            options["exif"] = Image.Exif()
            options["exif"][0x0112] = turn

    def write(self, directory, generator):
        bands = {"RGB": 3, "L": 1, "P": 3, "RGBA": 4, "CMYK": 4}[self.mode]
        pixels = picture(generator, *self.size, bands)
        image = Image.fromarray(pixels, self.mode if self.mode != "P" else "RGB")
        if self.mode == "P":
            image = image.quantize(64)
        path = os.path.join(directory, self.name)
        image.save(path, **self.options)
        return path


KINDS = [
    Kind("colour.png", (120, 90)),
    Kind("upright.png", (60, 200)),
    Kind("tiny.png", (23, 17)),
    Kind("grey.png", (81, 130), "L"),
    Kind("palette.png", (100, 100), "P"),
    Kind("transparent.png", (90, 70), "RGBA"),
    Kind("halved_chroma.jpg", (201, 150), quality=90, subsampling=2),
    Kind("full_chroma.jpg", (150, 223), quality=95, subsampling=0),
    Kind("large.jpg", (900, 700), quality=85, subsampling=2),
    Kind("progressive.jpg", (160, 120), quality=80, progressive=True),
    Kind("grey.jpg", (140, 110), "L", quality=90),
    Kind("print.jpg", (110, 100), "CMYK", quality=90),
    Kind("lossy.webp", (151, 101), quality=80),
    Kind("lossless.webp", (101, 121), lossless=True),
    Kind("transparent.webp", (64, 48), "RGBA", lossless=True),
    Kind("turned.webp", (120, 80), turn=6, quality=90),
    Kind("turned.png", (120, 81), turn=8),
    # Of odd width and height, which half a scale divides in the middle of a pixel.
    *[Kind(f"turned{turn}.jpg", (201, 151), turn=turn, quality=92) for turn in range(1, 9)],
]
