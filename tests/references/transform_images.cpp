// transform_images OUTPUT RECIPE SIZE CHANNELS DRAWS FILE...: what the loader makes of image files,
// for images.py to compare. Writes for each file `<index>/decoded` (height, width, channels) and
// for each draw `<index>/<draw>/pixels` (channels, height, width) and `<index>/<draw>/region`
// (left, top, width, height), all f32.
#include <fmt/format.h>

#include <cstdlib>
#include <deque>
#include <string>
#include <string_view>

#include "base/file.h"
#include "data/image/codec.h"
#include "data/image/transform.h"
#include "data/safetensors.h"

namespace millrace {
namespace {

constexpr std::string_view kView = "photo-view-";  // and a number, one of ten crops

data::TransformOptions recipe_of(const std::string& name, int size, int channels) {
  data::TransformOptions options;
  if (name == "photo" || name.starts_with(kView)) options = data::photograph_evaluation(size);
  if (name.starts_with(kView)) {
    options.view = data::crop_views(10).at(std::stoul(name.substr(kView.size())));
  }
  if (name == "photo-training") options = data::photograph_training(size);
  if (name == "face") options = data::face_evaluation(size);
  if (name == "face-training") options = data::face_training(size);
  if (name == "small") options = data::small_evaluation(size, channels);
  if (name == "small-training") options = data::small_training(size, channels);
  if (options.height != size) fail_input("There is no recipe '{}'.", name);
  options.channels = channels;
  return options;
}

class Results {
 public:
  std::vector<float>& add(std::string name, std::vector<int64_t> shape) {
    size_t elements = 1;
    for (const int64_t extent : shape) elements *= static_cast<size_t>(extent);
    std::vector<float>& values = values_.emplace_back(elements);
    tensors_.push_back(
        {std::move(name), "F32", std::move(shape), values.data(), elements * sizeof(float)});
    return values;
  }

  void write(const std::string& path) const { data::write_safetensors(path, tensors_, {}); }

 private:
  std::deque<std::vector<float>> values_;
  std::vector<data::SafetensorsTensor> tensors_;
};

void run(const std::vector<std::string>& words) {
  const data::TransformOptions options =
      recipe_of(words.at(1), std::stoi(words.at(2)), std::stoi(words.at(3)));
  const uint64_t draws = std::stoull(words.at(4));
  data::Transformer transformer(options);
  Results results;
  for (size_t i = 5; i < words.size(); ++i) {
    const std::string index = std::to_string(i - 5);
    const MappedFile file(words[i]);
    data::Sample sample;
    sample.bytes = file.bytes();
    const data::Image decoded = data::decode_image(sample, options.channels);
    std::vector<float>& whole =
        results.add(index + "/decoded", {decoded.height, decoded.width, decoded.channels});
    std::copy(decoded.pixels.begin(), decoded.pixels.end(), whole.begin());
    for (uint64_t draw = 0; draw < draws; ++draw) {
      const std::string place = fmt::format("{}/{}", index, draw);
      const Random random(7, draw);
      transformer.apply(
          sample, random,
          results.add(place + "/pixels", {options.channels, options.height, options.width}).data());
      const data::PixelRegion region =
          data::choose_region(options, decoded.height, decoded.width, random);
      results.add(place + "/region", {4}) = {
          static_cast<float>(region.left), static_cast<float>(region.top),
          static_cast<float>(region.width), static_cast<float>(region.height)};
    }
  }
  results.write(words.at(0));
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
