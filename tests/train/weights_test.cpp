#include "train/weights.h"

#include <gmock/gmock.h>

#include "support.h"

namespace millrace::train {
namespace {

using ::testing::HasSubstr;

class WeightsTest : public DirectoryTest {
 protected:
  // Writes f32 tensors of these names and shapes and checks them against the model's.
  std::string error_for(const std::vector<std::pair<std::string, graph::Shape>>& stored,
                        HeadRule head = HeadRule::needed, bool with_head = false) {
    StateSnapshot snapshot;
    for (const auto& [name, shape] : stored) {
      snapshot.push_back(state_tensor(name, graph::Role::parameter, shape, 0));
    }
    const auto path = directory_ / "weights.safetensors";
    write_tensors(path, snapshot, is_weight, metadata_);
    const data::WeightsFile file(path);
    return input_error_of([&] {
      said_ = describe(match_weights(file, tensors(with_head), head, &new_layers_, classes_));
    });
  }

  static std::vector<JobTensor> tensors(bool with_head) {
    std::vector<JobTensor> list = {{"conv.weight", graph::Role::parameter, {4, 3, 3, 3}},
                                   {"fc.weight", graph::Role::parameter, {10, 4}},
                                   {"fc.bias", graph::Role::parameter, {10}}};
    if (with_head) list.push_back({"head.weight", graph::Role::parameter, {5, 4}});
    return list;
  }

  NewLayers new_layers_;
  std::map<std::string, std::string> metadata_;  // of the file
  std::vector<std::string> classes_;             // of the data
  std::string said_;                             // of the last match
};

TEST_F(WeightsTest, AcceptsExactlyTheModelsTensors) {
  EXPECT_EQ(error_for({{"fc.bias", {10}}, {"conv.weight", {4, 3, 3, 3}}, {"fc.weight", {10, 4}}}),
            "");
}

TEST_F(WeightsTest, PassesOverTorchsBatchCounters) {
  EXPECT_EQ(error_for({{"fc.bias", {10}},
                       {"conv.weight", {4, 3, 3, 3}},
                       {"fc.weight", {10, 4}},
                       {"bn1.num_batches_tracked", {}}}),
            "");
}

TEST_F(WeightsTest, NamesTheFirstMissingTensorAndTheCount) {
  const std::string error = error_for({{"conv.weight", {4, 3, 3, 3}}});
  EXPECT_THAT(error, HasSubstr("weights.safetensors' does not fit the model: it has no tensor "
                               "'fc.weight' (2 tensors are missing)."));
}

TEST_F(WeightsTest, NamesBothShapesOfAMisshapenTensor) {
  const std::string error =
      error_for({{"fc.bias", {10}}, {"conv.weight", {4, 3, 3, 3}}, {"fc.weight", {1000, 4}}});
  EXPECT_THAT(
      error, HasSubstr("tensor 'fc.weight' has shape 1000x4 where the model has 10x4; ‹new_layers› "
                       "auto starts such layers anew."));
}

TEST_F(WeightsTest, NamesATensorThatTheModelLacks) {
  const std::string error = error_for({{"fc.bias", {10}},
                                       {"conv.weight", {4, 3, 3, 3}},
                                       {"fc.weight", {10, 4}},
                                       {"head.weight", {1}}});
  EXPECT_THAT(error, HasSubstr("the model has no tensor 'head.weight'."));
}

TEST_F(WeightsTest, AHeadMayBeMissingOnEitherSideButMustFit) {
  std::vector<std::pair<std::string, graph::Shape>> stored = {
      {"fc.bias", {10}}, {"conv.weight", {4, 3, 3, 3}}, {"fc.weight", {10, 4}}};
  EXPECT_EQ(error_for(stored, HeadRule::optional, true), "");
  EXPECT_THAT(error_for(stored, HeadRule::needed, true), HasSubstr("no tensor 'head.weight'"));
  stored.push_back({"head.weight", {6, 4}});
  EXPECT_EQ(error_for(stored, HeadRule::optional, false), "");
  EXPECT_THAT(error_for(stored, HeadRule::optional, true), HasSubstr("'head.weight' has shape"));
}

TEST_F(WeightsTest, LayersOfAnotherShapeStartAnewAsAWhole) {
  new_layers_ = parse_new_layers("auto");
  const std::pair<std::string, graph::Shape> conv = {"conv.weight", {4, 3, 3, 3}};
  const std::pair<std::string, graph::Shape> weight = {"fc.weight", {10, 5}},
                                             bias = {"fc.bias", {10}};
  EXPECT_EQ(error_for({conv, {"head.weight", {5, 4}}, weight, bias}, HeadRule::optional, true), "");
  EXPECT_EQ(said_, "2 of 4 tensors loaded; fc.weight, fc.bias start anew.");
  EXPECT_THAT(error_for({conv, weight, bias}, HeadRule::optional, true),
              HasSubstr("Only 1 of the model's 4 tensors are in"));
}

TEST_F(WeightsTest, MissingLayersStartAnewAndStrangersAreTold) {
  new_layers_ = parse_new_layers("auto");
  const std::pair<std::string, graph::Shape> weight = {"fc.weight", {10, 4}},
                                             bias = {"fc.bias", {10}};
  EXPECT_EQ(error_for({weight, bias, {"aux.weight", {1}}}), "");
  EXPECT_EQ(
      said_,
      "2 of 3 tensors loaded; conv.weight starts anew; aux.weight of the file has no place in "
      "the model.");
  EXPECT_THAT(error_for({{"other", {4}}}), HasSubstr("Only 0 of the model's 3 tensors are in"));
}

TEST_F(WeightsTest, PatternsStartLayersAnewWhateverTheFileHas) {
  new_layers_ = parse_new_layers("fc");
  const std::pair<std::string, graph::Shape> conv = {"conv.weight", {4, 3, 3, 3}};
  EXPECT_EQ(error_for({conv, {"fc.weight", {10, 4}}, {"fc.bias", {10}}}, HeadRule::optional, false),
            "");
  EXPECT_EQ(said_, "1 of 3 tensors loaded; fc.weight, fc.bias start anew.");
  EXPECT_EQ(error_for({conv, {"fc.extra", {1}}}), "");
  EXPECT_THAT(error_for({{"conv.weight", {4, 3, 1, 1}}}), HasSubstr("'conv.weight' has shape"));
}

TEST_F(WeightsTest, TheClassifierStartsAnewForOtherClasses) {
  new_layers_ = parse_new_layers("auto");
  classes_ = std::vector<std::string>(10, "mine");
  const std::vector<std::pair<std::string, graph::Shape>> stored = {
      {"conv.weight", {4, 3, 3, 3}}, {"fc.weight", {10, 4}}, {"fc.bias", {10}}};
  EXPECT_EQ(error_for(stored), "");
  EXPECT_EQ(said_, "3 of 3 tensors loaded.");  // the file does not tell
  metadata_["classes"] =
      R"(["mine","mine","mine","mine","mine","mine","mine","mine","mine","mine"])";
  EXPECT_EQ(error_for(stored), "");
  EXPECT_EQ(said_, "3 of 3 tensors loaded.");
  metadata_["classes"] = R"(["cat","dog"])";
  EXPECT_EQ(error_for(stored), "");
  EXPECT_EQ(said_,
            "1 of 3 tensors loaded; fc.weight, fc.bias start anew (the file has the classes cat, "
            "dog).");
  new_layers_.automatic = false;
  EXPECT_EQ(error_for(stored), "");
  EXPECT_EQ(said_, "3 of 3 tensors loaded.");
}

TEST_F(WeightsTest, APatternThatFitsNoLayerIsAMistake) {
  const std::vector<std::pair<std::string, graph::Shape>> stored = {
      {"conv.weight", {4, 3, 3, 3}}, {"fc.weight", {10, 4}}, {"fc.bias", {10}}};
  new_layers_ = parse_new_layers("fc,comv");
  EXPECT_EQ(error_for(stored),
            "‹new_layers› 'comv' fits no layer of the network (did you mean 'conv'?).");
}

TEST_F(WeightsTest, NobodyIsAdvisedToStartLayersAnewWhereNoneMayBe) {
  const auto path = directory_ / "weights.safetensors";
  write_tensors(path, {state_tensor("fc.bias", graph::Role::parameter, {7}, 0)}, is_weight, {});
  const data::WeightsFile file(path);
  const std::vector<JobTensor> model = {{"fc.bias", graph::Role::parameter, {10}}};
  const std::string error = input_error_of([&] { match_weights(file, model); });
  EXPECT_THAT(error, HasSubstr("has shape 7 where the model has 10."));
}

TEST_F(WeightsTest, WritesOnlyTheWantedRoles) {
  const auto path = directory_ / "weights.safetensors";
  write_tensors(path, small_snapshot(5), is_weight, {{"format", "pt"}});
  const data::SafetensorsFile file(path);
  ASSERT_EQ(file.entries().size(), 2u);
  EXPECT_EQ(file.at("conv.weight").shape, (graph::Shape{2, 3, 1, 1}));
  float first = 0;
  std::memcpy(&first, file.at("bn.running_mean").data.data(), sizeof(first));
  EXPECT_EQ(first, 5.0f);
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

}  // namespace
}  // namespace millrace::train
