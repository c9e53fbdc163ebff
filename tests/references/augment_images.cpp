// augment_images INPUT OUTPUT MAGNITUDE DRAWS: changes of training images, for augmentation.py to
// compare. INPUT has `images` (N, H, W, 3 or 1) of bytes as f32; OUTPUT gets for every operation of
// RandAugment `<name>+` and `<name>-` of the same shape, of each change of colour the first image
// with kJitters drawn factors (kJitters, H, W, 3 or 1), and `erased` and `cropped` (DRAWS, 4) what
// random erasing and a random crop took: left, top, width, height.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>

#include "data/image/colour.h"
#include "data/image/rand_augment.h"
#include "data/image/transform.h"
#include "data/safetensors.h"

namespace millrace {
namespace {

constexpr int64_t kJitters = 200;
constexpr float kJitter = 0.6f;

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

// Gives an image's values to `change` as pixels of so many lanes, and writes back what they become.
template <typename Change>
void change_image(const Images& images, float* own, Change&& change) {
  const size_t lanes = images.colours() == 1 ? 1 : 4;
  std::vector<float> pixels(images.pixels() * lanes);
  for (size_t i = 0; i < images.pixels(); ++i) {
    for (size_t c = 0; c < images.colours(); ++c) {
      pixels[i * lanes + c] = own[i * images.colours() + c];
    }
  }
  change(pixels, static_cast<int>(lanes));
  for (size_t i = 0; i < images.pixels(); ++i) {
    for (size_t c = 0; c < images.colours(); ++c) {
      own[i * images.colours() + c] = pixels[i * lanes + c];
    }
  }
}

std::vector<float> changed(const Images& images, size_t operation, int magnitude, bool negative) {
  std::vector<float> result = images.values;
  std::vector<float> scratch;
  for (size_t n = 0; n < static_cast<size_t>(images.shape[0]); ++n) {
    change_image(images, result.data() + n * images.pixels() * images.colours(),
                 [&](std::vector<float>& pixels, int lanes) {
                   data::apply_operation(operation, magnitude, negative,
                                         {pixels, static_cast<int>(images.shape[1]),
                                          static_cast<int>(images.shape[2]), lanes},
                                         scratch);
                 });
  }
  return result;
}

std::vector<float> jittered(const Images& images, const data::ColourJitter& jitter) {
  const auto size = static_cast<ptrdiff_t>(images.pixels() * images.colours());
  std::vector<float> result;
  for (int64_t draw = 0; draw < kJitters; ++draw) {
    std::vector<float> own(images.values.begin(), images.values.begin() + size);
    change_image(images, own.data(), [&](std::vector<float>& pixels, int lanes) {
      data::apply_jitter(jitter, Random(7, static_cast<uint64_t>(draw)), 0, pixels, lanes);
    });
    result.insert(result.end(), own.begin(), own.end());
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
  const std::vector<int64_t> jitters = {kJitters, images.shape[1], images.shape[2],
                                        images.shape[3]};
  add("brightness", jitters, jittered(images, {.brightness = kJitter}));
  add("contrast", jitters, jittered(images, {.contrast = kJitter}));
  add("saturation", jitters, jittered(images, {.saturation = kJitter}));
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
