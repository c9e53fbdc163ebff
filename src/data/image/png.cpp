#include "data/image/png.h"

#include <png.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "data/image/colour.h"
#include "data/sample.h"

namespace millrace::data {
namespace {

// One bit per pixel at the highest compression that deflate can reach.
constexpr int64_t kMaxPngPixelsPerByte = 8 * 1032;
constexpr std::array<unsigned char, 8> kSignature = {0x89, 'P', 'N', 'G', 0x0D, 0x0A, 0x1A, 0x0A};

// Frees libpng's state however the function ends.
struct PngImage {
  PngImage() {
    std::memset(&image, 0, sizeof(image));
    image.version = PNG_IMAGE_VERSION;
  }
  ~PngImage() { png_image_free(&image); }
  PngImage(const PngImage&) = delete;
  PngImage& operator=(const PngImage&) = delete;
  png_image image;
};

void begin_read(PngImage& png, std::span<const std::byte> bytes) {
  if (!png_image_begin_read_from_memory(&png.image, bytes.data(), bytes.size())) {
    fail_data("its PNG image is broken ({})", png.image.message);
  }
  require_pixels("PNG", png.image.height, png.image.width);
  const int64_t pixels = int64_t{png.image.width} * png.image.height;
  const int64_t plausible = kMaxPngPixelsPerByte * static_cast<int64_t>(bytes.size());
  if (pixels > plausible) {
    fail_data("its PNG image claims {} × {} pixels in {} bytes", png.image.width, png.image.height,
              bytes.size());
  }
}

}  // namespace

bool is_png(std::span<const std::byte> bytes) {
  return bytes.size() >= kSignature.size() &&
         std::memcmp(bytes.data(), kSignature.data(), kSignature.size()) == 0;
}

PngInfo probe_png(std::span<const std::byte> bytes) {
  PngImage png;
  begin_read(png, bytes);
  return {static_cast<int>(png.image.height), static_cast<int>(png.image.width),
          (png.image.format & PNG_FORMAT_FLAG_COLOR) != 0 ? 3 : 1};
}

ImageView decode_png(std::span<const std::byte> bytes, int channels,
                     std::vector<uint8_t>& storage) {
  PngImage png;
  begin_read(png, bytes);
  // libpng would make grey of light, not of the values stored.
  const bool has_colour = (png.image.format & PNG_FORMAT_FLAG_COLOR) != 0;
  const bool to_grey = channels == 1 && has_colour;
  png.image.format = has_colour || channels == 3 ? PNG_FORMAT_RGBA : PNG_FORMAT_GA;
  const int with_alpha = png.image.format == PNG_FORMAT_RGBA ? 4 : 2;
  const int height = static_cast<int>(png.image.height);
  const int width = static_cast<int>(png.image.width);
  storage.resize(PNG_IMAGE_SIZE(png.image));
  if (!png_image_finish_read(&png.image, nullptr, storage.data(), 0, nullptr)) {
    fail_data("its PNG image is broken ({})", png.image.message);
  }
  const int64_t pixels = int64_t{height} * width;
  for (int64_t i = 0; i < pixels; ++i) {
    const uint8_t* from = storage.data() + i * with_alpha;
    uint8_t* to = storage.data() + i * channels;
    if (to_grey) {
      *to = grey_of(from[0], from[1], from[2]);
    } else {
      std::copy(from, from + channels, to);
    }
  }
  return {storage.data(), height, width, channels, int64_t{width} * channels};
}

std::vector<std::byte> encode_png(const ImageView& image) {
  PngImage png;
  png.image.width = static_cast<png_uint_32>(image.width);
  png.image.height = static_cast<png_uint_32>(image.height);
  png.image.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  const auto stride = static_cast<png_int_32>(image.stride);
  png_alloc_size_t size = 0;
  std::vector<std::byte> bytes(PNG_IMAGE_PNG_SIZE_MAX(png.image));
  size = bytes.size();
  if (!png_image_write_to_memory(&png.image, bytes.data(), &size, 0, image.pixels, stride,
                                 nullptr)) {
    fail_data("it cannot be stored as PNG ({})", png.image.message);
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace millrace::data
