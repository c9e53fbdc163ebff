// JPEG through libjpeg-turbo.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "data/image/image.h"

namespace millrace::data {

// Decodes one JPEG. The bytes must outlive the reader; `decode` may be called once. Takes any
// bytes and throws BadData for what is no intact JPEG. One thread at a time.
class JpegReader {
 public:
  explicit JpegReader(std::span<const std::byte> bytes);
  ~JpegReader();

  int height() const;
  int width() const;
  int channels() const;

  // Decodes to 1 or 3 channels; the result points into `storage`. `exact` gives the whole image at
  // full size with colour interpolated smoothly, as other decoders do. Without it, which is faster,
  // colour is repeated, and the result is the smallest part that covers `region`, at the smallest
  // DCT scale (1/8, 1/4, 1/2, 1) that still has target_width × target_height pixels in it.
  DecodedPart decode(const PixelRegion& region, int target_height, int target_width, int channels,
                     bool exact, std::vector<uint8_t>& storage);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

bool is_jpeg(std::span<const std::byte> bytes);

// 1 or 3 channels; quality 1 to 100.
std::vector<std::byte> encode_jpeg(const ImageView& image, int quality);

}  // namespace millrace::data
