// Synthetic pictures that behave like photographs: textures, shapes and noise that depend on
// the class, with the sizes on disk and the decoding cost of real JPEGs.
#pragma once

#include <cstdint>

#include "data/image/image.h"
#include "data/record_writer.h"

namespace millrace::data {

struct SynthOptions {
  uint64_t count = 1000;
  int64_t classes = 10;
  int height = 375;
  int width = 500;
  int channels = 3;
  int quality = 90;  // of the JPEG
  uint64_t seed = 0;
};

// Picture `index` of a set, of class index % classes. A function of its arguments alone; what a
// class looks like does not depend on the seed, so sets of different seeds can train and test.
Image synthesise_image(const SynthOptions& options, uint64_t index);

// Writes a whole set. `as_pixels` gives the writer pixels rather than JPEGs. Throws InputError
// if an option is out of range.
void synthesise(const SynthOptions& options, RecordWriter& writer, bool as_pixels);

}  // namespace millrace::data
