#include "train/model_card.h"

#include <gmock/gmock.h>

#include "support.h"

namespace millrace::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TrainJob card_job() {
  TrainJob job;
  job.model = "resnet18";
  job.options = models::default_options("resnet18");
  job.options.classes = 2;
  job.options.image = 96;
  job.class_names = {"cat", "dog"};
  return job;
}

TEST(ModelCardTest, TravelsInTheMetadataOfAFile) {
  const ModelCard card = card_of(card_job());
  const ModelCard back = card_of_metadata(to_metadata(card), "x.safetensors");
  EXPECT_EQ(back.model, "resnet18");
  EXPECT_EQ(back.classes, 2);
  EXPECT_EQ(back.image, 96);
  EXPECT_EQ(back.channels, 3);
  EXPECT_THAT(back.class_names, ElementsAre("cat", "dog"));
  ASSERT_TRUE(back.recipe);
  EXPECT_EQ(*back.recipe, *card.recipe);
  EXPECT_EQ(to_metadata(card).at("format"), "pt");
}

TEST(ModelCardTest, MeanAndDeviationOfTheJobAreTheCards) {
  TrainJob job = card_job();
  job.data.mean = {0.1f, 0.2f, 0.3f};
  const ModelCard card = card_of(job);
  EXPECT_THAT(card.recipe->mean, ElementsAre(0.1f, 0.2f, 0.3f));
  EXPECT_THAT(card.recipe->deviation, ElementsAre(0.229f, 0.224f, 0.225f));
}

TEST(ModelCardTest, ARecipeOfWeightsIsUsedAndFollowsTheSize) {
  TrainJob job = card_job();
  job.data.recipe = data::ImageRecipe{.image = 64,
                                      .channels = 3,
                                      .crop = data::CropKind::centre,
                                      .shorter_side = 80,
                                      .mean = {0.5f, 0.5f, 0.5f},
                                      .deviation = {0.25f, 0.25f, 0.25f}};
  const ModelCard card = card_of(job);
  EXPECT_EQ(card.recipe->image, 96);
  EXPECT_EQ(card.recipe->shorter_side, 120);
  EXPECT_THAT(card.recipe->mean, ElementsAre(0.5f, 0.5f, 0.5f));
}

TEST(ModelCardTest, WhatOthersWroteTellsNothing) {
  const ModelCard card = card_of_metadata({{"format", "pt"}}, "x.safetensors");
  EXPECT_EQ(card.model, "");
  EXPECT_EQ(card.classes, 0);
  EXPECT_FALSE(card.recipe);
  EXPECT_EQ(class_name(card, 3), "3");
  EXPECT_EQ(class_name(card_of(card_job()), 1), "dog");
}

TEST(ModelCardTest, DamagedMetadataIsRefused) {
  EXPECT_THAT(input_error_of([] {
                card_of_metadata({{"preprocessing", "{"}}, "x.safetensors");
              }),
              HasSubstr("'x.safetensors' has metadata that is not JSON"));
  EXPECT_THAT(input_error_of([] {
                card_of_metadata({{"preprocessing", "{}"}}, "x.safetensors");
              }),
              HasSubstr("no valid 'image'"));
}

}  // namespace
}  // namespace millrace::train
