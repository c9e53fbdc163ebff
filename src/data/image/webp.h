// WebP through libwebp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/image/image.h"

namespace millrace::data {

struct WebpInfo {
  int height = 0;
  int width = 0;
};

bool is_webp(std::span<const std::byte> bytes);

// Reads the header alone. Takes any bytes, throws BadData; animations are refused.
WebpInfo probe_webp(std::span<const std::byte> bytes);

// Decodes to 1 or 3 channels, dropping transparency. Takes any bytes, throws BadData; `storage`
// is reused as the result's pixels.
ImageView decode_webp(std::span<const std::byte> bytes, int channels,
                      std::vector<uint8_t>& storage);

}  // namespace millrace::data
