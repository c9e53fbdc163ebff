#include "data/formats/pixel_spool.h"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "data/image/codec.h"

namespace millrace {

PixelSpool::PixelSpool(const std::filesystem::path& directory)
    : directory_(directory.empty() ? "." : directory) {
  std::string name = (directory_ / ".millrace-spool-XXXXXX").string();
  descriptor_ = ::mkstemp(name.data());
  if (descriptor_ < 0) {
    fail_input("Cannot write in '{}': {}.", directory_.string(), std::strerror(errno));
  }
  ::unlink(name.c_str());
}

PixelSpool::~PixelSpool() { ::close(descriptor_); }

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
  const uint8_t* cursor = image.pixels.data();
  uint64_t left = image.pixels.size();
  while (left > 0) {
    const ssize_t written = ::write(descriptor_, cursor, left);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      fail_input("Cannot write in '{}': {}.", directory_.string(), std::strerror(errno));
    }
    cursor += written;
    left -= static_cast<uint64_t>(written);
  }
  labels_.push_back(sample.label);
}

void PixelSpool::copy(const std::function<void(const void*, uint64_t)>& write) {
  std::vector<char> buffer(1 << 20);
  off_t offset = 0;
  while (true) {
    const ssize_t count = ::pread(descriptor_, buffer.data(), buffer.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      fail_input("Cannot read back from '{}': {}.", directory_.string(), std::strerror(errno));
    }
    if (count == 0) return;
    write(buffer.data(), static_cast<uint64_t>(count));
    offset += count;
  }
}

}  // namespace millrace
