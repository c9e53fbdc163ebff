#include "data/formats/pixel_spool.h"

#include "data/image/codec.h"

namespace millrace::data {

void PixelSpool::add(const Sample& sample) {
  const Image image = decode_image(sample);
  if (labels_.empty()) {
    height_ = image.height;
    width_ = image.width;
    channels_ = image.channels;
  }
  if (image.height != height_ || image.width != width_ || image.channels != channels_) {
    fail_data("its image of {} × {} × {} differs from the first, {} × {} × {}", image.height,
              image.width, image.channels, height_, width_, channels_);
  }
  file_.write(image.pixels.data(), image.pixels.size());
  labels_.push_back(sample.label);
}

}  // namespace millrace::data
