#include "data/image/codec.h"

#include <utility>

#include "data/image/colour.h"
#include "data/image/png.h"
#include "data/image/webp.h"

namespace millrace::data {
namespace {

ImageView pixels_of(const Sample& sample) {
  return {reinterpret_cast<const uint8_t*>(sample.bytes.data()), sample.height, sample.width,
          sample.channels, int64_t{sample.width} * sample.channels};
}

ImageView convert_channels(const ImageView& from, int channels, std::vector<uint8_t>& storage) {
  storage.resize(static_cast<size_t>(from.height) * from.width * channels);
  uint8_t* to = storage.data();
  for (int y = 0; y < from.height; ++y) {
    const uint8_t* row = from.row(y);
    for (int x = 0; x < from.width; ++x) {
      if (channels == 3) {
        for (int c = 0; c < 3; ++c) *to++ = row[x];
      } else {
        const uint8_t* rgb = row + 3 * x;
        *to++ = grey_of(rgb[0], rgb[1], rgb[2]);
      }
    }
  }
  return {storage.data(), from.height, from.width, channels, int64_t{from.width} * channels};
}

// Formats that pictures have too, under whatever name.
[[noreturn]] void fail_other_format(std::span<const std::byte> bytes) {
  struct Format {
    const char* name;
    size_t at;
    std::string_view mark;
  };
  constexpr Format kFormats[] = {
      {"GIF", 0, "GIF8"},      {"BMP", 0, "BM"},       {"TIFF", 0, "II*"},
      {"TIFF", 0, "MM"},       {"HEIC", 4, "ftyphei"}, {"HEIC", 4, "ftypmif1"},
      {"AVIF", 4, "ftypavif"}, {"JPEG XL", 4, "JXL "}, {"JPEG XL", 0, "\xFF\x0A"},
      {"PDF", 0, "%PDF"},      {"JPEG 2000", 4, "jP"}};
  if (bytes.empty()) fail_data("it is empty");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const Format& format : kFormats) {
    if (text.size() <= format.at || !text.substr(format.at).starts_with(format.mark)) continue;
    fail_data("its image is in the format {}; convert it to JPEG, PNG or WebP", format.name);
  }
  fail_data("its image of {} bytes is neither JPEG, PNG nor WebP", bytes.size());
}

}  // namespace

ImageReader::ImageReader(const Sample& sample) : sample_(sample) {
  if (sample.is_pixels()) {
    format_ = "pixels";
    height_ = sample.height;
    width_ = sample.width;
    channels_ = sample.channels;
  } else if (is_jpeg(sample.bytes)) {
    format_ = "jpeg";
    jpeg_.emplace(sample.bytes);
    height_ = jpeg_->height();
    width_ = jpeg_->width();
    channels_ = jpeg_->channels();
  } else if (is_png(sample.bytes)) {
    format_ = "png";
    const PngInfo info = probe_png(sample.bytes);
    height_ = info.height;
    width_ = info.width;
    channels_ = info.channels;
  } else if (is_webp(sample.bytes)) {
    format_ = "webp";
    const WebpInfo info = probe_webp(sample.bytes);
    height_ = info.height;
    width_ = info.width;
    channels_ = 3;
  } else {
    fail_other_format(sample.bytes);
  }
  if (!sample.is_pixels()) orientation_ = Orientation::of(sample.bytes);
  if (orientation_.turned()) std::swap(height_, width_);
}

DecodedPart ImageReader::decode(const PixelRegion& region, int target_height, int target_width,
                                int channels, bool exact, std::vector<uint8_t>& storage) {
  if (orientation_.upright()) {
    return decode_stored(region, target_height, target_width, channels, exact, storage);
  }
  if (orientation_.turned()) std::swap(target_height, target_width);
  const int width = orientation_.turned() ? height_ : width_;
  const int height = orientation_.turned() ? width_ : height_;
  std::vector<uint8_t> stored;
  const DecodedPart part = decode_stored(orientation_.stored_region(region, width, height),
                                         target_height, target_width, channels, exact, stored);
  return orientation_.seen_part(part, width, height, storage);
}

DecodedPart ImageReader::decode_stored(const PixelRegion& region, int target_height,
                                       int target_width, int channels, bool exact,
                                       std::vector<uint8_t>& storage) {
  if (jpeg_) {
    return jpeg_->decode(region, target_height, target_width, channels, exact, storage);
  }
  DecodedPart part;
  if (format_ == "png") {
    part.view = decode_png(sample_.bytes, channels, storage);
  } else if (format_ == "webp") {
    part.view = decode_webp(sample_.bytes, channels, storage);
  } else {
    part.view = pixels_of(sample_);
    if (channels_ != channels) part.view = convert_channels(part.view, channels, storage);
  }
  return part;
}

Image decode_image(const Sample& sample, int channels) {
  ImageReader reader(sample);
  Image image{reader.height(), reader.width(), channels == 0 ? reader.channels() : channels, {}};
  const PixelRegion whole = {0, 0, static_cast<double>(image.width),
                             static_cast<double>(image.height)};
  const DecodedPart part =
      reader.decode(whole, image.height, image.width, image.channels, true, image.pixels);
  const size_t size = static_cast<size_t>(image.height) * image.width * image.channels;
  if (part.view.pixels != image.pixels.data()) {
    image.pixels.assign(part.view.pixels, part.view.pixels + size);
  }
  image.pixels.resize(size);
  return image;
}

EncodedImage::EncodedImage(const Sample& sample) : bytes_(sample.bytes) {
  if (!sample.is_pixels()) return;
  storage_ = encode_png(pixels_of(sample));
  bytes_ = storage_;
}

}  // namespace millrace::data
