// What shapes files cannot say: special values, exact sums, masks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/parallel.h"
#include "base/random.h"
#include "kernels/support/batch_norm_loops.h"
#include "testing.h"

namespace millrace::testing {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

KernelRun run_best(const SingleOperator& single, const std::vector<Values>& inputs,
                   const kernels::StepState& step = kStep) {
  const kernels::KernelOptions options;
  const kernels::KernelRequest request = single.request(options);
  return run_kernel(*kernels::make_kernel(request), request, inputs, {-1, -1}, step);
}

graph::TensorType floats(graph::Shape shape) { return {std::move(shape), graph::DataType::f32}; }
graph::TensorType labels(int64_t count) { return {{count}, graph::DataType::s32}; }

TEST(Activation, ReluKeepsNan) {
  const Values x = {kNan, -1, 2, kInfinity, -kInfinity, 0};
  const Values y = run_best({"relu", {}, {floats({1, 6})}}, {x}).outputs[0];
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(Values(y.begin() + 1, y.end()), (Values{0, 2, kInfinity, 0, 0}));
}

TEST(Activation, SigmoidAndTanhAreExactOverTheWholeRange) {
  Values x;
  for (double value = -120; value <= 120; value += 0.0625) x.push_back(value);
  x.insert(x.end(), {kInfinity, -kInfinity, 1e-20, -1e-6, 1e30, kNan});
  const auto count = static_cast<int64_t>(x.size());
  const Values sigmoid = run_best({"sigmoid", {}, {floats({1, count})}}, {x}).outputs[0];
  const Values tangent = run_best({"tanh", {}, {floats({1, count})}}, {x}).outputs[0];
  for (size_t i = 0; i + 1 < x.size(); ++i) {
    const double expected = 1 / (1 + std::exp(-static_cast<double>(static_cast<float>(x[i]))));
    EXPECT_NEAR(sigmoid[i], expected, 4e-7 * expected + 1e-37) << x[i];
    EXPECT_NEAR(tangent[i], std::tanh(x[i]), 4e-7 * std::abs(std::tanh(x[i]))) << x[i];
  }
  EXPECT_TRUE(std::isnan(sigmoid.back()));
  EXPECT_TRUE(std::isnan(tangent.back()));
}

TEST(SoftmaxCrossEntropy, UnknownLabelMakesTheLossNan) {
  const SingleOperator single("softmax_cross_entropy", {{"label_smoothing", 0.0}},
                              {floats({2, 3}), labels(2)});
  const Values logits = {1, 2, 3, 4, 5, 6};
  for (double wrong : {-1.0, 3.0, 2147483647.0, -2147483648.0}) {
    EXPECT_TRUE(std::isnan(run_best(single, {logits, {0, wrong}}).outputs[0][0])) << wrong;
    EXPECT_TRUE(std::isnan(run_reference(single, {logits, {0, wrong}}).outputs[0][0])) << wrong;
    const SingleOperator backward("softmax_cross_entropy_backward", {{"label_smoothing", 0.0}},
                                  {floats({1}), floats({2, 3}), labels(2)});
    const Values gradient = run_best(backward, {{1}, logits, {0, wrong}}).outputs[0];
    EXPECT_FALSE(std::isnan(gradient[0]));
    EXPECT_TRUE(std::isnan(gradient[3]));
  }
}

TEST(SoftmaxCrossEntropy, LargeLogitsStayFinite) {
  const SingleOperator single("softmax_cross_entropy", {{"label_smoothing", 0.0}},
                              {floats({2, 3}), labels(2)});
  const KernelRun run = run_best(single, {{1000, 0, -1000, 3e38, 3e38, -3e38}, {1, 0}});
  EXPECT_NEAR(run.outputs[0][0], (1000 + std::log(2.0)) / 2, 1e-3);
  EXPECT_EQ(run.outputs[1][0], 1);
  EXPECT_NEAR(run.outputs[1][3], 0.5, 1e-6);
}

TEST(Accuracy, EarlierClassWinsATie) {
  const SingleOperator top1("top_k", {{"k", int64_t{1}}}, {floats({3, 4}), labels(3)});
  const Values logits = {1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1};
  EXPECT_EQ(run_best(top1, {logits, {0, 1, 3}}).outputs[0][0], 1);
  EXPECT_EQ(run_reference(top1, {logits, {0, 1, 3}}).outputs[0][0], 1);
  const SingleOperator top2("top_k", {{"k", int64_t{2}}}, {floats({3, 4}), labels(3)});
  EXPECT_EQ(run_best(top2, {logits, {0, 1, 3}}).outputs[0][0], 2);
}

TEST(Accuracy, UnknownLabelsAndNanAreMisses) {
  const SingleOperator top2("top_k", {{"k", int64_t{2}}}, {floats({4, 2}), labels(4)});
  const Values logits = {1, 2, 1, 2, kNan, 2, 1, 2};
  EXPECT_EQ(run_best(top2, {logits, {-1, 2, 0, 1}}).outputs[0][0], 1);
  EXPECT_EQ(run_reference(top2, {logits, {-1, 2, 0, 1}}).outputs[0][0], 1);
}

TEST(Dropout, MaskIsThatOfTheStreamAndTheSameBackwards) {
  const int64_t count = 1000;
  const graph::Attributes attributes = {{"rate", 0.3}, {"stream", int64_t{42}}};
  const Values ones(static_cast<size_t>(count), 1.0);
  const kernels::StepState step = {.seed = 5, .step = 9, .learning_rate = 0};
  const auto forward = run_best({"dropout", attributes, {floats({1, count})}}, {ones}, step);
  const auto backward =
      run_best({"dropout_backward", attributes, {floats({1, count})}}, {ones}, step);
  EXPECT_EQ(forward.outputs[0], backward.outputs[0]);
  const Random random(hash_combine(5, 9), 42);
  for (size_t i = 0; i < ones.size(); ++i) {
    const double expected =
        random.uniform(i) >= 0.3 ? static_cast<double>(static_cast<float>(1 / 0.7)) : 0;
    EXPECT_EQ(forward.outputs[0][i], expected) << i;
  }
  const kernels::StepState next = {.seed = 5, .step = 10, .learning_rate = 0};
  EXPECT_NE(run_best({"dropout", attributes, {floats({1, count})}}, {ones}, next).outputs[0],
            forward.outputs[0]);
}

TEST(OverflowCheck, TellsTheFirstGradientThatIsNotFinite) {
  const SingleOperator single(
      "overflow_check",
      {{"has_squares", false}, {"members", int64_t{1}}, {"parameters", std::string("a b c")}},
      {floats({2}), floats({4}), floats({3, 2}), floats({5})});
  const std::vector<Values> good = {{7, 7}, Values(4, 1), Values(6, -3e38), Values(5, 0)};
  EXPECT_EQ(run_best(single, good).inputs[0], (Values{0, 0}));
  EXPECT_EQ(run_reference(single, good).inputs[0], (Values{0, 0}));
  for (size_t gradient = 1; gradient < good.size(); ++gradient) {
    for (const double bad : {kInfinity, -kInfinity, kNan}) {
      std::vector<Values> inputs = good;
      inputs[gradient].back() = bad;
      inputs[3][0] = kNan;
      const Values expected = {1, static_cast<double>(gradient)};
      EXPECT_EQ(run_best(single, inputs).inputs[0], expected);
      EXPECT_EQ(run_reference(single, inputs).inputs[0], expected);
    }
  }
}

TEST(Updates, ChangeNothingWhenTheyAreToSkip) {
  const std::vector<std::pair<std::string, size_t>> types = {
      {"sgd_plain_update", 2}, {"sgd_update", 3}, {"adamw_update", 4}, {"lars_update", 3}};
  for (const auto& [type, tensors] : types) {
    const graph::Attributes attributes = {
        {"momentum", 0.9}, {"weight_decay", 0.1}, {"nesterov", false},
        {"beta1", 0.9},    {"beta2", 0.99},       {"epsilon", 1e-8},
        {"trust", 0.1},    {"has_clip", true},    {"has_skip", true}};
    const bool counts = type == "adamw_update";
    std::vector<graph::TensorType> inputs(tensors, floats({3}));
    if (counts) inputs.push_back(floats({1}));
    inputs.push_back(floats({1}));
    inputs.push_back(floats({2}));
    const SingleOperator single(type, attributes, inputs);
    for (const double skip : {0.0, 1.0, 3.0}) {
      std::vector<Values> values(tensors, Values{0.5, 1, 0.25});
      if (counts) values.push_back({6});
      values.push_back({0.5});
      values.push_back({skip, 0});
      if (skip != 0) values[tensors - 1] = {kInfinity, kNan, 1};
      for (const KernelRun& run : {run_best(single, values), run_reference(single, values)}) {
        EXPECT_EQ(run.inputs[0] == values[0], skip != 0) << type;
        if (counts) {
          EXPECT_EQ(run.inputs[4], Values{skip == 0 ? 7.0 : 6.0});
        }
        if (skip == 0) continue;
        for (size_t i = 0; i + 1 < tensors; ++i) {
          EXPECT_EQ(run.inputs[i], values[i]) << type;
        }
      }
    }
  }
}

TEST(Updates, DivideByTheLossScale) {
  kernels::StepState scaled = kStep;
  scaled.loss_scale = 1024;
  const graph::Attributes attributes = {
      {"momentum", 0.9}, {"weight_decay", 0.1}, {"nesterov", true}, {"has_clip", false}};
  const SingleOperator single("sgd_update", attributes, {floats({3}), floats({3}), floats({3})});
  const std::vector<Values> plain = {{1, 2, 3}, {0.5, 0, 1}, {0.125, -3, 0.75}};
  std::vector<Values> times = plain;
  for (double& value : times[2]) value *= 1024;
  EXPECT_EQ(run_best(single, times, scaled).inputs[0], run_best(single, plain).inputs[0]);
  EXPECT_EQ(run_best(single, times, scaled).inputs[1], run_best(single, plain).inputs[1]);
}

TEST(Lars, ZeroNormsLeaveTheLearningRate) {
  const graph::Attributes attributes = {{"momentum", 0.9},
                                        {"weight_decay", 0.0},
                                        {"trust", 0.001},
                                        {"epsilon", 1e-9},
                                        {"has_clip", false}};
  const SingleOperator single("lars_update", attributes, {floats({2}), floats({2}), floats({2})});
  const KernelRun run = run_best(single, {{0, 0}, {0, 0}, {1, -2}});
  EXPECT_EQ(difference(run.inputs[0], {-0.05, 0.1}, 1e-7), "");
}

class TeamSizes : public ::testing::Test {
 protected:
  void TearDown() override { set_team_size(before_); }
  int before_ = team_size();
};

// Sums do not depend on how many threads share the work.
TEST_F(TeamSizes, ResultsAreTheSameToTheLastBit) {
  const std::vector<SingleOperator> operators = {
      {"sum_of_squares", {}, {floats({257, 1031}), floats({33})}},
      {"lars_update",
       {{"momentum", 0.9}, {"weight_decay", 0.1}, {"trust", 0.1}, {"epsilon", 1e-9}},
       {floats({300, 301}), floats({300, 301}), floats({300, 301})}},
      {"sgd_update",
       {{"momentum", 0.9}, {"weight_decay", 0.1}, {"nesterov", true}},
       {floats({300, 301}), floats({300, 301}), floats({300, 301})}},
      {"tanh", {}, {floats({300, 301})}},
      {"prelu_backward", {}, {floats({5, 37, 40, 41}), floats({5, 37, 40, 41}), floats({37})}},
      {"softmax_cross_entropy", {{"label_smoothing", 0.1}}, {floats({129, 1000}), labels(129)}}};
  for (const SingleOperator& single : operators) {
    std::vector<Values> inputs;
    for (size_t i = 0; i < single.inputs.size(); ++i) {
      inputs.push_back(single.inputs[i].dtype == graph::DataType::s32
                           ? random_labels(single.inputs[i], 1000, i)
                           : random_values(single.inputs[i], i));
    }
    set_team_size(1);
    const KernelRun alone = run_best(single, inputs);
    for (int threads : {2, 3, 5}) {
      set_team_size(threads);
      const KernelRun team = run_best(single, inputs);
      EXPECT_EQ(team.outputs, alone.outputs) << single.op.type << ", " << threads;
      EXPECT_EQ(team.inputs, alone.inputs) << single.op.type << ", " << threads;
    }
  }
}

TEST(BatchNormLoops, ResultsThatGoPastTheCachesAreTheSame) {
  constexpr int64_t kPixels = 48;
  struct alignas(64) Plane {
    float values[kPixels * 16];
  };
  for (const int64_t block : {1, 8, 16}) {
    SCOPED_TRACE(block);
    Plane x;
    Plane residual;
    Plane near = {};
    Plane far = {};
    float parameters[16];
    for (int64_t i = 0; i < kPixels * 16; ++i) {
      x.values[i] = 0.25f * static_cast<float>(i % 29) - 3.0f;
      residual.values[i] = 0.5f * static_cast<float>(i % 11) - 2.0f;
    }
    for (int64_t i = 0; i < 16; ++i) parameters[i] = 0.5f + static_cast<float>(i);
    for (const bool with_residual : {false, true}) {
      const float* added = with_residual ? residual.values : nullptr;
      for (Plane* to : {&near, &far}) {
        kernels::plane_apply(x.values, added, parameters, parameters, {kernels::Bend::Kind::relu},
                             kPixels, block, to == &far, to->values);
      }
      EXPECT_TRUE(std::equal(near.values, near.values + kPixels * block, far.values));
      EXPECT_TRUE(
          std::any_of(far.values, far.values + kPixels * block, [](float y) { return y > 0; }));
    }
  }
}

// What many pixels add up to is rounded about once, not once for each of them.
TEST(BatchNormLoops, SumsOfManyPixelsAreAsExactAsThoseOfFew) {
  constexpr int64_t kPixels = 112 * 112 + 5;
  constexpr double kAllowed = 1.2e-7;
  for (const int64_t block : {1, 8, 16}) {
    SCOPED_TRACE(block);
    const graph::TensorType type = floats({kPixels, block});
    const auto drawn = [&](uint64_t seed) {
      const Values values = random_values(type, seed, true);
      return std::vector<float>(values.begin(), values.end());
    };
    const std::vector<float> x = drawn(1);
    const std::vector<float> dy = drawn(2);
    const std::vector<float> ones(16, 1.0f);
    const std::vector<float> lower(16, -1.0f);  // what half of the values are above
    const std::vector<float> zeros(16, 0.0f);
    float mean[16];
    float squares[16];
    float sums[3][16];
    kernels::plane_statistics(x.data(), kPixels, block, mean, squares);
    kernels::plane_gradient_sums(dy.data(), x.data(), zeros.data(), ones.data(), lower.data(),
                                 {kernels::Bend::Kind::prelu, ones.data()}, kPixels, block, sums[0],
                                 sums[1], sums[2]);
    for (int64_t c = 0; c < block; ++c) {
      double total = 0;
      double plain = 0;
      double weighted = 0;
      double sloped = 0;
      for (int64_t i = c; i < kPixels * block; i += block) {
        const double value = x[static_cast<size_t>(i)];
        const double gradient = dy[static_cast<size_t>(i)];
        total += value;
        plain += gradient;
        weighted += gradient * value;
        sloped += gradient * std::min(0.0, value - 1);
      }
      double away = 0;
      for (int64_t i = c; i < kPixels * block; i += block) {
        const double off = static_cast<double>(x[static_cast<size_t>(i)]) - total / kPixels;
        away += off * off;
      }
      const auto off = [](double actual, double expected) {
        return std::abs(actual / expected - 1);
      };
      EXPECT_LE(off(mean[c], total / kPixels), kAllowed);
      EXPECT_LE(off(squares[c], away), kAllowed);
      EXPECT_LE(off(sums[0][c], plain), kAllowed);
      EXPECT_LE(off(sums[1][c], weighted), kAllowed);
      EXPECT_LE(off(sums[2][c], sloped), kAllowed);
    }
  }
}

// Normalised values reach beyond 6 here.
TEST(BatchNormLoops, GradientsOfRelu6PassBetweenItsEndsAlone) {
  constexpr int64_t kPixels = 33;
  for (const int64_t block : {1, 8, 16}) {
    SCOPED_TRACE(block);
    std::vector<float> x(static_cast<size_t>(kPixels * block));
    for (size_t i = 0; i < x.size(); ++i) x[i] = 0.75f * static_cast<float>(i % 19) - 4.0f;
    const std::vector<float> dy(x.size(), 1.0f);
    const std::vector<float> ones(16, 1.0f);
    const std::vector<float> zeros(16, 0.0f);
    std::vector<float> dx(x.size());
    kernels::plane_gradient(dy.data(), x.data(), zeros.data(), ones.data(), zeros.data(),
                            zeros.data(), zeros.data(), {kernels::Bend::Kind::relu6}, kPixels,
                            block, dx.data());
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(dx[i], x[i] > 0 && x[i] < 6 ? 1.0f : 0.0f) << x[i];
    }
  }
}

const graph::Attributes kPool = {{"kernel", graph::Shape{2, 2}},
                                 {"stride", graph::Shape{2, 2}},
                                 {"padding", graph::Shape{0, 0}}};

TEST(MaxPool, NothingIsLargerThanWhatIsNoNumber) {
  const SingleOperator single("max_pool", kPool, {floats({1, 16, 2, 4})});
  const kernels::KernelOptions options;
  Values x;
  for (int channel = 0; channel < 16; ++channel) {
    x.insert(x.end(), {1, kNan, -kInfinity, -kInfinity, 7, 2, -kInfinity, -kInfinity});
  }
  for (const char* layout : {"", "aBcd8b", "aBcd16b"}) {
    SCOPED_TRACE(layout);
    const kernels::KernelRequest request = wished(single, options, graph::Layout(layout));
    const KernelRun run = run_kernel(*kernels::make_kernel(request), request, {x});
    for (size_t i = 0; i < 32; i += 2) {
      EXPECT_TRUE(std::isnan(run.outputs[0][i]));
      EXPECT_EQ(run.outputs[1][i], 1);
      EXPECT_EQ(run.outputs[0][i + 1], -kInfinity);
      EXPECT_EQ(run.outputs[1][i + 1], 0);
    }
  }
}

// What arrives may be plain, as of a linear layer; the large image is not to be reordered.
TEST(MaxPool, GradientsLieAsThePooledImageDid) {
  graph::Attributes attributes = kPool;
  attributes.set("input_shape", graph::Shape{1, 16, 4, 4});
  const graph::TensorType positions = {{1, 16, 2, 2}, graph::DataType::u8};
  const SingleOperator single("max_pool_backward", attributes, {floats({1, 16, 2, 2}), positions});
  const kernels::KernelOptions options;
  kernels::KernelRequest request = single.request(options);
  request.inputs[1].layout = graph::Layout("aBcd16b");
  const kernels::LayoutWish wish = kernels::layouts_of(request);
  EXPECT_EQ(wish.inputs[0], graph::Layout("aBcd16b"));
  EXPECT_EQ(wish.outputs[0], graph::Layout("aBcd16b"));
}

}  // namespace
}  // namespace millrace::testing
