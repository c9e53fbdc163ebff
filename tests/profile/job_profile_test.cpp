// Profiles of small jobs: what is measured adds up, is saved and read again.
#include "profile/job_profile.h"

#include <gmock/gmock.h>

#include <functional>

#include "base/error.h"
#include "planner/pipedream.h"
#include "small_job.h"

namespace millrace::profile {
namespace {

using ::testing::HasSubstr;

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

class JobProfileTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    train::TrainingObserver silent;
    profile_ = new JobProfile(profile_job(small_job("0:0"), {.rounds = 3}, silent));
  }
  static void TearDownTestSuite() { delete profile_; }

  static JobProfile* profile_;
};

JobProfile* JobProfileTest::profile_ = nullptr;

TEST_F(JobProfileTest, LayersAreTheSumsOfTheirOperators) {
  const JobProfile& profile = *profile_;
  ASSERT_EQ(profile.programs.size(), 1u);
  double operators = 0, layers = profile.other_seconds;
  for (const OperatorCost& cost : profile.programs[0].operators) operators += cost.seconds;
  int convolutions = 0;
  for (const LayerCost& layer : profile.layers) {
    layers += layer.seconds();
    if (layer.type != "convolution") continue;
    ++convolutions;
    EXPECT_GT(layer.forward_seconds, 0) << layer.name;
    EXPECT_GT(layer.backward_seconds, 0) << layer.name;
    EXPECT_GT(layer.update_seconds, 0) << layer.name;
    EXPECT_GT(layer.parameter_bytes, 0) << layer.name;
  }
  EXPECT_GT(convolutions, 1);
  EXPECT_NEAR(operators, layers, 1e-9);
  EXPECT_LT(profile.other_seconds, 0.1 * operators);
  EXPECT_THAT(layer_table(profile, 3), HasSubstr("all"));
}

TEST_F(JobProfileTest, ComesBackFromJson) {
  const Json json = to_json(*profile_);
  const JobProfile again = parse_job_profile(json.dump(), "x.json");
  EXPECT_EQ(to_json(again), json);
}

TEST_F(JobProfileTest, RefusesDamagedJson) {
  const auto refused = [](const Json& json) {
    return error_of([&] { parse_job_profile(json.dump(), "x.json"); });
  };
  EXPECT_THAT(error_of([] { parse_job_profile("{", "x.json"); }), HasSubstr("x.json"));
  EXPECT_THAT(refused(Json::array()), HasSubstr("not an object"));
  const Json good = to_json(*profile_);
  for (const auto& [key, value] : good.items()) {
    Json damaged = good;
    damaged.erase(key);
    EXPECT_THAT(refused(damaged), HasSubstr("'" + key + "'")) << key;
    damaged[key] = Json::object();
    EXPECT_NE(refused(damaged), "") << key;
  }
  Json cyclic = good;
  cyclic["layers"][0]["inputs"] = {0};
  EXPECT_THAT(refused(cyclic), HasSubstr("no layer before it"));
  Json negative = good;
  negative["programs"][0]["operators"][0]["seconds"] = -1;
  EXPECT_THAT(refused(negative), HasSubstr("'seconds'"));
}

TEST_F(JobProfileTest, ComesBackFromPipedreamsText) {
  const planner::Profile made = to_pipedream(*profile_);
  const planner::Profile again = planner::parse_profile(planner::format_profile(made), "x.txt");
  ASSERT_EQ(again.nodes.size(), profile_->layers.size());
  EXPECT_EQ(again.edges, made.edges);
  double milliseconds = 0, parameters = 0;
  for (size_t i = 0; i < made.nodes.size(); ++i) {
    EXPECT_EQ(again.nodes[i].description, made.nodes[i].description);
    EXPECT_EQ(again.nodes[i].forward_milliseconds, made.nodes[i].forward_milliseconds);
    EXPECT_EQ(again.nodes[i].activation_bytes, made.nodes[i].activation_bytes);
    milliseconds += again.nodes[i].forward_milliseconds + again.nodes[i].backward_milliseconds;
    parameters += again.nodes[i].parameter_bytes;
  }
  double seconds = 0;
  for (const LayerCost& layer : profile_->layers) seconds += layer.seconds();
  EXPECT_NEAR(milliseconds, 1e3 * seconds, 1e-6);
  const graph::Graph network = models::build_model("fashion_cnn", small_job("0:0").options);
  double expected = 0;
  for (graph::TensorId id = 0; id < network.tensor_count(); ++id) {
    const graph::Tensor& tensor = network.tensor(id);
    if (tensor.role == graph::Role::parameter)
      expected += 4.0 * static_cast<double>(tensor.type.elements());
  }
  EXPECT_EQ(parameters, expected);
}

}  // namespace
}  // namespace millrace::profile
