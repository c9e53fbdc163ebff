#include "data/image/orientation.h"

#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "data/formats/byte_cursor.h"
#include "data/image/jpeg.h"
#include "data/image/png.h"
#include "data/image/webp.h"

namespace millrace::data {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kExifStart = "Exif\0\0"sv;
constexpr uint16_t kOrientationTag = 0x0112;

// Numbers of a TIFF structure, whose first letters tell the order of bytes.
class TiffNumbers {
 public:
  explicit TiffNumbers(std::string_view tiff) : tiff_(tiff), big_(tiff.starts_with("MM")) {}

  std::optional<uint32_t> at(uint64_t offset, size_t size) const {
    if (offset > tiff_.size() || tiff_.size() - offset < size) return {};
    uint32_t number = 0;
    for (size_t i = 0; i < size; ++i) {
      const auto byte = static_cast<uint8_t>(tiff_[offset + (big_ ? i : size - 1 - i)]);
      number = number << 8 | byte;
    }
    return number;
  }

 private:
  std::string_view tiff_;
  bool big_;
};

// The orientation that the first directory of a TIFF structure has, or 1.
int orientation_in(std::string_view tiff) {
  if (!tiff.starts_with("II") && !tiff.starts_with("MM")) return 1;
  const TiffNumbers numbers(tiff);
  const uint64_t directory = numbers.at(4, 4).value_or(0);
  const uint32_t count = numbers.at(directory, 2).value_or(0);
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t entry = directory + 2 + uint64_t{12} * i;
    const std::optional<uint32_t> tag = numbers.at(entry, 2);
    if (!tag) return 1;
    if (*tag != kOrientationTag) continue;
    const uint32_t value = numbers.at(entry + 8, 2).value_or(1);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

// Segments FF xx, a length of two bytes with itself, content; up to the image itself.
std::string_view exif_of_jpeg(std::string_view text) {
  size_t at = 2;
  while (at + 4 <= text.size() && text[at] == '\xFF') {
    const auto kind = static_cast<uint8_t>(text[at + 1]);
    const size_t length =
        static_cast<uint8_t>(text[at + 2]) * size_t{256} + static_cast<uint8_t>(text[at + 3]);
    if (kind == 0xFF) {
      ++at;
      continue;
    }
    if (kind == 0xDA || length < 2 || at + 2 + length > text.size()) return {};
    const std::string_view content = text.substr(at + 4, length - 2);
    if (kind == 0xE1 && content.starts_with(kExifStart)) return content.substr(kExifStart.size());
    at += 2 + length;
  }
  return {};
}

// Chunks with a name and a length, in the byte order of the format.
std::string_view exif_of_chunks(std::string_view text, size_t at, std::string_view name,
                                bool is_png) {
  while (at + 8 <= text.size()) {
    uint64_t length = 0;
    for (size_t i = 0; i < 4; ++i) {
      const size_t byte = is_png ? at + i : at + 7 - i;
      length = length << 8 | static_cast<uint8_t>(text[byte]);
    }
    const std::string_view kind = text.substr(is_png ? at + 4 : at, 4);
    if (length > text.size() - at - 8) return {};
    if (kind == name) {
      std::string_view content = text.substr(at + 8, length);
      if (content.starts_with(kExifStart)) content.remove_prefix(kExifStart.size());
      return content;
    }
    if (is_png && kind == "IDAT") return {};
    at += 8 + length + (is_png ? 4 : length % 2);
  }
  return {};
}

}  // namespace

Orientation Orientation::of(std::span<const std::byte> encoded) {
  const std::string_view text = as_text(encoded);
  if (is_jpeg(encoded)) return Orientation(orientation_in(exif_of_jpeg(text)));
  if (is_png(encoded)) return Orientation(orientation_in(exif_of_chunks(text, 8, "eXIf", true)));
  if (is_webp(encoded)) return Orientation(orientation_in(exif_of_chunks(text, 12, "EXIF", false)));
  return Orientation();
}

bool Orientation::mirrors_columns() const {
  return value_ == 2 || value_ == 3 || value_ == 7 || value_ == 8;
}

bool Orientation::mirrors_rows() const {
  return value_ == 3 || value_ == 4 || value_ == 6 || value_ == 7;
}

PixelRegion Orientation::stored_region(const PixelRegion& seen, int width, int height) const {
  PixelRegion region = seen;
  if (turned()) {
    std::swap(region.left, region.top);
    std::swap(region.width, region.height);
  }
  if (mirrors_columns()) region.left = width - region.left - region.width;
  if (mirrors_rows()) region.top = height - region.top - region.height;
  return region;
}

DecodedPart Orientation::seen_part(const DecodedPart& stored, int width, int height,
                                   std::vector<uint8_t>& storage) const {
  const ImageView& from = stored.view;
  const int channels = from.channels;
  DecodedPart seen = stored;
  if (mirrors_columns()) seen.left = width * stored.scale - stored.left - from.width;
  if (mirrors_rows()) seen.top = height * stored.scale - stored.top - from.height;
  if (turned()) {
    std::swap(seen.left, seen.top);
    std::swap(seen.view.width, seen.view.height);
  }
  seen.view.stride = int64_t{seen.view.width} * channels;
  storage.resize(static_cast<size_t>(seen.view.stride * seen.view.height));
  uint8_t* to = storage.data();
  for (int y = 0; y < seen.view.height; ++y) {
    for (int x = 0; x < seen.view.width; ++x) {
      int column = turned() ? y : x;
      int row = turned() ? x : y;
      if (mirrors_columns()) column = from.width - 1 - column;
      if (mirrors_rows()) row = from.height - 1 - row;
      const uint8_t* pixel = from.row(row) + int64_t{column} * channels;
      for (int c = 0; c < channels; ++c) *to++ = pixel[c];
    }
  }
  seen.view.pixels = storage.data();
  return seen;
}

}  // namespace millrace::data
