#include "data/image/webp.h"

#include <webp/decode.h>

#include "data/formats/byte_cursor.h"
#include "data/image/colour.h"

namespace millrace::data {
namespace {

const uint8_t* webp_bytes(std::span<const std::byte> bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}

}  // namespace

bool is_webp(std::span<const std::byte> bytes) {
  const std::string_view text = as_text(bytes);
  return text.starts_with("RIFF") && text.size() >= 12 && text.substr(8, 4) == "WEBP";
}

WebpInfo probe_webp(std::span<const std::byte> bytes) {
  WebPBitstreamFeatures features = {};
  if (WebPGetFeatures(webp_bytes(bytes), bytes.size(), &features) != VP8_STATUS_OK) {
    fail_data("its WebP image is broken");
  }
  if (features.has_animation != 0) fail_data("its WebP image is an animation");
  require_pixels("WebP", features.height, features.width);
  return {.height = features.height, .width = features.width};
}

ImageView decode_webp(std::span<const std::byte> bytes, int channels,
                      std::vector<uint8_t>& storage) {
  const WebpInfo info = probe_webp(bytes);
  const size_t pixels = static_cast<size_t>(info.width) * static_cast<size_t>(info.height);
  storage.resize(pixels * 3);
  if (WebPDecodeRGBInto(webp_bytes(bytes), bytes.size(), storage.data(), storage.size(),
                        info.width * 3) == nullptr) {
    fail_data("its WebP image is broken");
  }
  if (channels == 1) {
    for (size_t i = 0; i < pixels; ++i) {
      const uint8_t* rgb = &storage[3 * i];
      storage[i] = grey_of(rgb[0], rgb[1], rgb[2]);
    }
  }
  return {storage.data(), info.height, info.width, channels, int64_t{info.width} * channels};
}

}  // namespace millrace::data
