#include "data/image/recipe.h"

#include <gmock/gmock.h>

#include "data/image/transform.h"
#include "support.h"

namespace millrace::data {
namespace {

using ::testing::HasSubstr;

TEST(RecipeTest, TravelsAsJson) {
  for (const TransformOptions& options :
       {photograph_evaluation(224), face_evaluation(112), small_evaluation(28, 1)}) {
    const ImageRecipe recipe = recipe_of(options);
    EXPECT_EQ(parse_recipe(Json::parse(to_json(recipe).dump())), recipe);
    const TransformOptions back = transform_of(recipe);
    EXPECT_EQ(back.crop, options.crop);
    EXPECT_EQ(back.channels, options.channels);
    EXPECT_EQ(back.shorter_side, options.shorter_side);
    EXPECT_FALSE(back.flip);
  }
}

TEST(RecipeTest, SaysWhatTorchvisionsTransformsTake) {
  const Json json = to_json(recipe_of(photograph_evaluation(224)));
  EXPECT_EQ(json["resize"], 256);
  EXPECT_EQ(json["crop"], "centre");
  EXPECT_EQ(json["interpolation"], "bilinear");
  EXPECT_NEAR(json["mean"][1].get<double>(), 0.456, 1e-6);
  EXPECT_NEAR(json["std"][2].get<double>(), 0.225, 1e-6);
}

TEST(RecipeTest, AnotherSizeKeepsTheProportion) {
  const ImageRecipe smaller = resized(recipe_of(photograph_evaluation(224)), 112);
  EXPECT_EQ(smaller.image, 112);
  EXPECT_EQ(smaller.shorter_side, 128);
}

TEST(RecipeTest, ColouredSmallImagesAreNormalisedAsPhotographs) {
  EXPECT_EQ(small_evaluation(64, 3).mean, photograph_evaluation(224).mean);
  EXPECT_NE(small_evaluation(28, 1).mean, photograph_evaluation(224).mean);
}

TEST(RecipeTest, EveryWrongFieldIsNamed) {
  const Json good = to_json(recipe_of(photograph_evaluation(224)));
  const std::vector<std::pair<const char*, Json>> faults = {
      {"image", 0},     {"image", "large"},    {"channels", 4},
      {"crop", "left"}, {"resize", nullptr},   {"interpolation", "x"},
      {"mean", {1, 2}}, {"mean", {1, 2, "x"}}, {"std", {0.1, 0, 0.1}},
      {"std", 1}};
  for (const auto& [name, value] : faults) {
    Json bad = good;
    bad[name] = value;
    EXPECT_THAT(input_error_of([&bad = bad] { parse_recipe(bad); }), HasSubstr("recipe for images"))
        << name;
  }
  EXPECT_THAT(input_error_of([] { parse_recipe(Json::array()); }), HasSubstr("no JSON object"));
}

}  // namespace
}  // namespace millrace::data
