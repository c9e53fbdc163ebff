#include "data/image/recipe.h"

#include <string>
#include <string_view>
#include <vector>

#include "data/sample.h"

namespace millrace::data {
namespace {

constexpr std::string_view kBilinear = "bilinear";
constexpr int64_t kLargestImage = 1 << 15;

int64_t recipe_number(const Json& json, const char* name) {
  const Json value = json.value(name, Json());
  if (!value.is_number_integer() || value.get<int64_t>() < 1 ||
      value.get<int64_t>() > kLargestImage) {
    fail_data("its recipe for images has no valid '{}'", name);
  }
  return value.get<int64_t>();
}

std::array<float, 3> recipe_colours(const Json& json, const char* name, bool positive) {
  const Json value = json.value(name, Json());
  bool valid = value.is_array() && value.size() == 3;
  std::array<float, 3> colours = {};
  for (size_t i = 0; valid && i < colours.size(); ++i) {
    valid = value[i].is_number();
    if (valid) colours[i] = value[i].get<float>();
    if (positive) valid = valid && colours[i] > 0;
  }
  if (!valid) fail_data("its recipe for images has no valid '{}'", name);
  return colours;
}

}  // namespace

ImageRecipe resized(ImageRecipe recipe, int image) {
  const int64_t shorter = int64_t{recipe.shorter_side} * image / recipe.image;
  recipe.shorter_side = static_cast<int>(shorter);
  recipe.image = image;
  return recipe;
}

Json to_json(const ImageRecipe& recipe) {
  Json json;
  json["image"] = recipe.image;
  json["channels"] = recipe.channels;
  json["crop"] = recipe.crop == CropKind::centre ? "centre" : "whole";
  if (recipe.crop == CropKind::centre) json["resize"] = recipe.shorter_side;
  json["interpolation"] = kBilinear;
  json["mean"] = recipe.mean;
  json["std"] = recipe.deviation;
  return json;
}

ImageRecipe parse_recipe(const Json& json) {
  if (!json.is_object()) fail_data("its recipe for images is no JSON object");
  ImageRecipe recipe;
  recipe.image = static_cast<int>(recipe_number(json, "image"));
  recipe.channels = static_cast<int>(recipe_number(json, "channels"));
  if (recipe.channels != 1 && recipe.channels != 3) {
    fail_data("its recipe for images has {} channels instead of 1 or 3", recipe.channels);
  }
  const std::string crop = json.value("crop", Json()).dump();
  if (crop == R"("centre")") {
    recipe.crop = CropKind::centre;
    recipe.shorter_side = static_cast<int>(recipe_number(json, "resize"));
  } else if (crop == R"("whole")") {
    recipe.crop = CropKind::whole;
  } else {
    fail_data("its recipe for images has the unknown crop {}", crop);
  }
  if (json.value("interpolation", Json()).dump() != fmt::format("\"{}\"", kBilinear)) {
    fail_data("its recipe for images is not bilinear");
  }
  recipe.mean = recipe_colours(json, "mean", false);
  recipe.deviation = recipe_colours(json, "std", true);
  return recipe;
}

}  // namespace millrace::data
