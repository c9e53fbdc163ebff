// One record of a data set, and how a bad one is reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace millrace::data {

// Something is wrong with one record or image: the message is a clause without file or
// position ("its JPEG data ends early"); whoever knows the place adds it.
class BadData : public InputError {
 public:
  using InputError::InputError;
};

template <typename... Arguments>
[[noreturn]] void fail_data(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  throw BadData(fmt::format(format, std::forward<Arguments>(arguments)...));
}

// An image, encoded (JPEG or PNG) or as pixels (height × width × channels bytes), with its
// label. `bytes` points into the source's file, which must outlive the sample, or into
// `storage`; moving keeps it valid, copying is not possible.
struct Sample {
  Sample() = default;
  Sample(Sample&&) noexcept = default;
  Sample& operator=(Sample&&) noexcept = default;
  Sample(const Sample&) = delete;
  Sample& operator=(const Sample&) = delete;

  std::span<const std::byte> bytes;
  int height = 0;  // all three are 0 when the bytes are an encoded image
  int width = 0;
  int channels = 0;
  int64_t label = 0;
  std::vector<float> labels;  // every label of a record with several; otherwise empty
  std::vector<std::byte> storage;

  bool is_pixels() const { return height > 0; }
};

}  // namespace millrace::data
