// PNG through libpng.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "data/image/image.h"

namespace millrace::data {

struct PngInfo {
  int height = 0;
  int width = 0;
  int channels = 0;  // 1 or 3; transparency is not counted
};

bool is_png(std::span<const std::byte> bytes);

// Reads the header alone. Takes any bytes, throws BadData.
PngInfo probe_png(std::span<const std::byte> bytes);

// Decodes to 1 or 3 channels, dropping transparency. Takes any bytes, throws BadData; `storage`
// is reused as the result's pixels.
ImageView decode_png(std::span<const std::byte> bytes, int channels, std::vector<uint8_t>& storage);

std::vector<std::byte> encode_png(const ImageView& image);

}  // namespace millrace::data
