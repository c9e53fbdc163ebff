// augment_images INPUT OUTPUT MAGNITUDE DRAWS: changes of training images, for augmentation.py to
// compare. INPUT has `images` (N, H, W, 3 or 1) of bytes as f32; OUTPUT gets for every operation of
// RandAugment `<name>+` and `<name>-` of the same shape, and `erased` and `cropped` (DRAWS, 4) what
// random erasing and a random crop took: left, top, width, height.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>

#include "data/image/rand_augment.h"
#include "data/image/transform.h"
#include "data/safetensors.h"

namespace millrace {
namespace {

struct Images {
  std::vector<int64_t> shape;
  std::vector<float> values;

  explicit Images(const data::SafetensorsEntry& entry)
      : shape(entry.shape), values(entry.data.size() / sizeof(float)) {
    std::memcpy(values.data(), entry.data.data(), entry.data.size());
  }
  size_t pixels() const { return static_cast<size_t>(shape[1] * shape[2]); }
  size_t colours() const { return static_cast<size_t>(shape[3]); }
};

std::vector<float> changed(const Images& images, size_t operation, int magnitude, bool negative) {
  const size_t lanes = images.colours() == 1 ? 1 : 4;
  std::vector<float> result = images.values;
  std::vector<float> scratch;
  for (size_t n = 0; n < static_cast<size_t>(images.shape[0]); ++n) {
    std::vector<float> pixels(images.pixels() * lanes);
    float* own = result.data() + n * images.pixels() * images.colours();
    for (size_t i = 0; i < images.pixels(); ++i) {
      for (size_t c = 0; c < images.colours(); ++c) {
        pixels[i * lanes + c] = own[i * images.colours() + c];
      }
    }
    data::apply_operation(operation, magnitude, negative,
                          {pixels, static_cast<int>(images.shape[1]),
                           static_cast<int>(images.shape[2]), static_cast<int>(lanes)},
                          scratch);
    for (size_t i = 0; i < images.pixels(); ++i) {
      for (size_t c = 0; c < images.colours(); ++c) {
        own[i * images.colours() + c] = pixels[i * lanes + c];
      }
    }
  }
  return result;
}

void run(const std::vector<std::string>& words) {
  const data::SafetensorsFile file(words.at(0));
  const Images images(file.at("images"));
  const int magnitude = std::stoi(words.at(2));
  const int64_t draws = std::stoll(words.at(3));
  std::deque<std::vector<float>> values;
  std::vector<data::SafetensorsTensor> tensors;
  const auto add = [&](std::string name, std::vector<int64_t> shape, std::vector<float> numbers) {
    values.push_back(std::move(numbers));
    tensors.push_back({std::move(name), "F32", std::move(shape), values.back().data(),
                       values.back().size() * sizeof(float)});
  };
  const auto names = data::augment_operations();
  for (size_t i = 0; i < names.size(); ++i) {
    for (const bool negative : {false, true}) {
      add(std::string(names[i]) + (negative ? "-" : "+"), images.shape,
          changed(images, i, magnitude, negative));
    }
  }
  data::TransformOptions options = data::photograph_training(32);
  options.height = static_cast<int>(images.shape[1]);
  options.width = static_cast<int>(images.shape[2]);
  std::vector<float> erased, cropped;
  for (int64_t draw = 0; draw < draws; ++draw) {
    const Random random(3, static_cast<uint64_t>(draw));
    const data::ErasedPart part = data::choose_erased(options, random);
    for (const int number : {part.left, part.top, part.width, part.height}) {
      erased.push_back(static_cast<float>(number));
    }
    const data::PixelRegion region =
        data::choose_region(options, options.height, options.width, random);
    for (const double number : {region.left, region.top, region.width, region.height}) {
      cropped.push_back(static_cast<float>(number));
    }
  }
  add("erased", {draws, 4}, std::move(erased));
  add("cropped", {draws, 4}, std::move(cropped));
  data::write_safetensors(words.at(1), tensors, {});
}

}  // namespace
}  // namespace millrace

int main(int count, char** words) {
  try {
    millrace::run({words + 1, words + count});
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return EXIT_FAILURE;
  }
}
