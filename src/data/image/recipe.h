// What is done to an image before a network sees it, as it travels with the network's weights.
#pragma once

#include <array>
#include <cstdint>

#include "base/json.h"

namespace millrace::data {

// Which part of the image becomes the input.
enum class CropKind : uint8_t {
  random_resized,  // a random area and aspect ratio, resized: training on photographs
  centre,          // shorter side resized to `shorter_side`, then the centre: their evaluation
  whole,           // the whole image resized: aligned faces, small images
  pad_and_shift,   // the whole image resized, moved by up to `padding` pixels, black around it
};

// The recipe of an evaluation: nothing in it is random. Images are resized bilinearly, averaging
// where they shrink (torchvision's `antialias`). Plain data.
struct ImageRecipe {
  int image = 224;  // height and width
  int channels = 3;
  CropKind crop = CropKind::centre;  // or whole
  int shorter_side = 256;            // that is resized to before the centre is cut out
  std::array<float, 3> mean = {};
  std::array<float, 3> deviation = {};

  bool operator==(const ImageRecipe&) const = default;
};

// The same for another size: the shorter side keeps its proportion to it.
ImageRecipe resized(ImageRecipe recipe, int image);

// {"image": 224, "channels": 3, "crop": "centre", "resize": 256, "interpolation": "bilinear",
// "mean": [...], "std": [...]}
Json to_json(const ImageRecipe& recipe);

// The reverse; takes any JSON and throws BadData.
ImageRecipe parse_recipe(const Json& json);

}  // namespace millrace::data
