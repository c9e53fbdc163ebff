#include "train/weights.h"

#include <gmock/gmock.h>

#include "support.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

class WeightsTest : public DirectoryTest {
 protected:
  // Writes f32 tensors of these names and shapes and checks them against the model's.
  std::string error_for(const std::vector<std::pair<std::string, Shape>>& stored,
                        HeadRule head = HeadRule::needed, bool with_head = false) {
    StateSnapshot snapshot;
    for (const auto& [name, shape] : stored) {
      snapshot.push_back(state_tensor(name, Role::parameter, shape, 0));
    }
    const auto path = directory_ / "weights.safetensors";
    write_tensors(path, snapshot, is_weight, {});
    const SafetensorsFile file(path);
    return input_error_of([&] { check_tensors(file, path, tensors(with_head), head); });
  }

  static std::vector<JobTensor> tensors(bool with_head) {
    std::vector<JobTensor> list = {{"conv.weight", Role::parameter, {4, 3, 3, 3}},
                                   {"fc.weight", Role::parameter, {10, 4}},
                                   {"fc.bias", Role::parameter, {10}}};
    if (with_head) list.push_back({"head.weight", Role::parameter, {5, 4}});
    return list;
  }
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
  EXPECT_THAT(error, HasSubstr("tensor 'fc.weight' has shape 1000x4 where the model has 10x4."));
}

TEST_F(WeightsTest, NamesATensorThatTheModelLacks) {
  const std::string error = error_for({{"fc.bias", {10}},
                                       {"conv.weight", {4, 3, 3, 3}},
                                       {"fc.weight", {10, 4}},
                                       {"head.weight", {1}}});
  EXPECT_THAT(error, HasSubstr("the model has no tensor 'head.weight'."));
}

TEST_F(WeightsTest, AHeadMayBeMissingOnEitherSideButMustFit) {
  std::vector<std::pair<std::string, Shape>> stored = {
      {"fc.bias", {10}}, {"conv.weight", {4, 3, 3, 3}}, {"fc.weight", {10, 4}}};
  EXPECT_EQ(error_for(stored, HeadRule::optional, true), "");
  EXPECT_THAT(error_for(stored, HeadRule::needed, true), HasSubstr("no tensor 'head.weight'"));
  stored.push_back({"head.weight", {6, 4}});
  EXPECT_EQ(error_for(stored, HeadRule::optional, false), "");
  EXPECT_THAT(error_for(stored, HeadRule::optional, true), HasSubstr("'head.weight' has shape"));
}

TEST_F(WeightsTest, WritesOnlyTheWantedRoles) {
  const auto path = directory_ / "weights.safetensors";
  write_tensors(path, small_snapshot(5), is_weight, {{"format", "pt"}});
  const SafetensorsFile file(path);
  ASSERT_EQ(file.entries().size(), 2u);
  EXPECT_EQ(file.at("conv.weight").shape, (Shape{2, 3, 1, 1}));
  float first = 0;
  std::memcpy(&first, file.at("bn.running_mean").data.data(), sizeof(first));
  EXPECT_EQ(first, 5.0f);
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

}  // namespace
}  // namespace millrace
