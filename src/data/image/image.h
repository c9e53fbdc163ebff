// Images as bytes: rows from top to bottom, channels interleaved.
#pragma once

#include <cstdint>
#include <vector>

#include "data/sample.h"

namespace millrace::data {

// Pixels owned by someone else; `stride` is the bytes from one row to the next.
struct ImageView {
  const uint8_t* pixels = nullptr;
  int height = 0;
  int width = 0;
  int channels = 0;
  int64_t stride = 0;

  const uint8_t* row(int y) const { return pixels + y * stride; }
};

struct Image {
  int height = 0;
  int width = 0;
  int channels = 0;
  std::vector<uint8_t> pixels;

  ImageView view() const {
    return {pixels.data(), height, width, channels, int64_t{width} * channels};
  }
};

// A rectangle in pixels of the image as it is stored, not necessarily on whole pixels.
struct PixelRegion {
  double left = 0;
  double top = 0;
  double width = 0;
  double height = 0;
};

// What a decoder produced for a region: `view` is the stored image scaled by `scale`, without
// the `left` columns and `top` rows (counted after scaling) before it. Of a mirrored image they end
// within a pixel, where the scaled width is no whole number.
struct DecodedPart {
  ImageView view;
  double scale = 1;
  double left = 0;
  double top = 0;
};

// No image may have more pixels than this.
inline constexpr int64_t kMaxPixels = int64_t{1} << 27;

// Throws BadData for an image of more.
inline void require_pixels(const char* format, int64_t height, int64_t width) {
  if (height <= kMaxPixels && width <= kMaxPixels && height * width <= kMaxPixels) return;
  fail_data("its {} image has {} × {} pixels, more than the {} million that are read", format,
            width, height, kMaxPixels / 1'000'000);
}

}  // namespace millrace::data
