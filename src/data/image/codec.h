// Images of samples, whatever they are stored as.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "data/image/image.h"
#include "data/image/jpeg.h"
#include "data/image/orientation.h"
#include "data/sample.h"

namespace millrace::data {

// Opens the image of a sample (pixels, JPEG, PNG or WebP) the right way up, to learn its size and
// then decode a part of it. The sample must outlive the reader; `decode` may be called once. Throws
// BadData for any bytes that are no intact image. One thread at a time.
class ImageReader {
 public:
  explicit ImageReader(const Sample& sample);

  int height() const { return height_; }
  int width() const { return width_; }
  int channels() const { return channels_; }
  std::string_view format() const { return format_; }  // "pixels", "jpeg", "png" or "webp"

  // See JpegReader::decode; other formats give the whole image. The result may point into
  // `storage` or into the sample.
  DecodedPart decode(const PixelRegion& region, int target_height, int target_width, int channels,
                     bool exact, std::vector<uint8_t>& storage);

 private:
  DecodedPart decode_stored(const PixelRegion& region, int target_height, int target_width,
                            int channels, bool exact, std::vector<uint8_t>& storage);

  const Sample& sample_;
  std::string_view format_;
  int height_ = 0;
  int width_ = 0;
  int channels_ = 0;
  std::optional<JpegReader> jpeg_;
  Orientation orientation_;
};

// The whole image at full size, with the channels it is stored with or those asked for.
Image decode_image(const Sample& sample, int channels = 0);

// The encoded bytes of a sample; pixels become a PNG. Does not outlive the sample.
class EncodedImage {
 public:
  explicit EncodedImage(const Sample& sample);
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> storage_;
  std::span<const std::byte> bytes_;
};

}  // namespace millrace::data
