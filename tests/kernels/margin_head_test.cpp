#include "graph/margin_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "head_harness.h"

namespace millrace::testing {
namespace {

constexpr double kTolerance = 1e-5;

std::vector<std::vector<int32_t>> everything(const HeadCase& entry) {
  std::vector<int32_t> all;
  for (int32_t j = 0; j < entry.classes; ++j) all.push_back(j);
  return {all};
}

HeadStep checked(const HeadCase& entry, const HeadValues& values, double tolerance = kTolerance) {
  const HeadStep step = run_head(entry, values);
  EXPECT_EQ(difference(step, dense_head(entry, values, step.samples), tolerance), "");
  return step;
}

TEST(MarginHead, AllClassesOnAnyNumberOfShardsAreTheDenseSoftmax) {
  HeadCase entry = {.batch = 13, .dimension = 24, .classes = 611};
  const HeadValues values = random_head(entry, 1);
  const HeadStep dense = dense_head(entry, values, everything(entry));
  for (const int shards : {1, 2, 3, 8}) {
    for (const bool reference : {false, true}) {
      entry.shards = shards;
      entry.reference = reference;
      EXPECT_EQ(difference(run_head(entry, values), dense, kTolerance), "") << shards;
    }
  }
}

TEST(MarginHead, FewIdentitiesPerShard) {
  const HeadCase entry = {.batch = 9, .dimension = 40, .classes = 11, .shards = 8, .scale = 16};
  const HeadValues values = random_head(entry, 2);
  EXPECT_EQ(
      difference(run_head(entry, values), dense_head(entry, values, everything(entry)), kTolerance),
      "");
}

TEST(MarginHead, ASampleIsTheDenseSoftmaxOverIt) {
  for (const int shards : {1, 3}) {
    for (const char* optimizer : {"", "momentum", "adamw"}) {
      HeadCase entry = {
          .batch = 17, .dimension = 32, .classes = 2003, .shards = shards, .sample_rate = 0.2};
      entry.optimizer = optimizer;
      const HeadValues values = random_head(entry, 3);
      const HeadStep step = checked(entry, values);
      size_t count = 0;
      for (const auto& part : step.samples) count += part.size();
      EXPECT_NEAR(static_cast<double>(count), 400, 3);
    }
  }
}

TEST(MarginHead, ThreadsAndKeptProductsChangeNothingButRounding) {
  HeadCase entry = {.batch = 33, .dimension = 48, .classes = 5000};
  const HeadValues values = random_head(entry, 4);
  const HeadStep one = checked(entry, values);
  for (const int threads : {2, 3}) {
    for (const int64_t cache : {int64_t{1}, int64_t{300} << 10}) {
      entry.threads = threads;
      entry.cache_bytes = cache;
      EXPECT_EQ(difference(run_head(entry, values), one, kTolerance), "") << threads;
    }
  }
  const HeadStep again = run_head(entry, values);
  EXPECT_EQ(difference(again, run_head(entry, values), 0), "") << "not the same bits";
}

TEST(MarginHead, EveryMarginFollowsItsFormula) {
  const double margins[][3] = {{1, 0, 0},     {1, 0.5, 0}, {1, 0, 0.4},
                               {1, 0.3, 0.2}, {2, 0, 0},   {1.35, 0.1, 0.05}};
  for (const auto& margin : margins) {
    for (const bool exact : {true, false}) {
      HeadCase entry = {.batch = 8, .dimension = 16, .classes = 50};
      entry.multiplier = margin[0];
      entry.addend = margin[1];
      entry.subtrahend = margin[2];
      entry.exact_gradient = exact;
      checked(entry, random_head(entry, 5));
    }
  }
}

// tests/golden/make_margin_head.py has PyTorch differentiate the formulas.
TEST(GoldenMarginHead, AgreesWithPyTorch) {
  const std::filesystem::path path =
      std::filesystem::path(MILLRACE_TEST_DATA) / "../golden/margin_head.json";
  const Json cases = Json::parse(read_text(path));
  ASSERT_GT(cases.size(), 4u);
  for (const Json& golden : cases) {
    HeadCase entry = {.batch = golden["batch"], .dimension = golden["dimension"]};
    entry.classes = golden["classes"];
    entry.multiplier = golden["margin"][0];
    entry.addend = golden["margin"][1];
    entry.subtrahend = golden["margin"][2];
    entry.scale = golden["scale"];
    entry.exact_gradient = golden["exact_gradient"];
    entry.optimizer = "";
    entry.step.learning_rate = 1;
    const HeadValues values = {golden["embeddings"], golden["labels"], golden["centres"], {}};
    const HeadStep step = run_head(entry, values);
    EXPECT_NEAR(step.loss, golden["loss"].get<double>(), 1e-5 * step.loss) << golden["margin"];
    const Values of_embeddings = golden["of_embeddings"];
    EXPECT_EQ(difference(step.of_embeddings,
                         across(values.embeddings, of_embeddings, entry.dimension), 1e-5),
              "");
    Values of_centres;
    for (size_t i = 0; i < values.centres.size(); ++i) {
      of_centres.push_back(values.centres[i] * (1 - 0.01) - step.centres[i]);
    }
    EXPECT_EQ(difference(of_centres, golden["of_centres"].get<Values>(), 2e-5), "");
  }
}

// Moves each sample to a given angle from its own centre.
HeadValues at_angles(const HeadCase& entry, const std::vector<double>& angles) {
  HeadValues values = random_head(entry, 6);
  const int64_t width = entry.dimension;
  for (int64_t i = 0; i < entry.batch; ++i) {
    values.labels[static_cast<size_t>(i)] = static_cast<double>(i);
    double* centre = values.centres.data() + i * width;
    double* embedding = values.embeddings.data() + i * width;
    const auto normalise = [&](double* x) {
      double norm = 0;
      for (int64_t d = 0; d < width; ++d) norm += x[d] * x[d];
      for (int64_t d = 0; d < width; ++d) x[d] /= std::sqrt(norm);
    };
    std::vector<double> unit(centre, centre + width);
    normalise(unit.data());
    double along = 0;
    for (int64_t d = 0; d < width; ++d) along += embedding[d] * unit[static_cast<size_t>(d)];
    for (int64_t d = 0; d < width; ++d) embedding[d] -= along * unit[static_cast<size_t>(d)];
    normalise(embedding);
    const double angle = angles[static_cast<size_t>(i)];
    for (int64_t d = 0; d < width; ++d) {
      embedding[d] = static_cast<float>(std::cos(angle) * unit[static_cast<size_t>(d)] +
                                        std::sin(angle) * embedding[d]);
    }
  }
  return values;
}

// A float32 cosine near 1 knows the angle to about 1e-7 / angle.
TEST(MarginHead, AnglesNearZeroAndPi) {
  constexpr double kPi = std::numbers::pi;
  const std::vector<double> angles = {0.02, 0.1, 1.5, kPi - 0.5, kPi - 0.1, kPi - 0.02};
  for (const double addend : {0.0, 0.5}) {
    HeadCase entry = {.batch = 6, .dimension = 12, .classes = 40, .addend = addend};
    entry.multiplier = addend == 0 ? 1.35 : 1;
    checked(entry, at_angles(entry, angles), 2e-3);
  }
  HeadCase entry = {.batch = 4, .dimension = 12, .classes = 40};
  for (const double scale : {1.0, 64.0}) {
    entry.scale = scale;
    const HeadStep step = run_head(entry, at_angles(entry, {0, 1e-5, kPi, kPi - 1e-5}));
    EXPECT_TRUE(std::isfinite(step.loss));
    for (const double g : step.of_embeddings) EXPECT_LT(std::abs(g), 1e4 * scale);
    for (const double w : step.centres) EXPECT_LT(std::abs(w), 100 * scale);
  }
}

// The gradient that the harness's formulas give is the slope of the harness's loss.
TEST(MarginHead, GradientsAreDifferenceQuotients) {
  constexpr double kPi = std::numbers::pi;
  HeadCase entry = {.batch = 4, .dimension = 6, .classes = 12, .scale = 8};
  entry.optimizer = "";
  entry.step.learning_rate = 1;
  for (const double multiplier : {1.0, 1.35}) {
    entry.multiplier = multiplier;
    HeadValues values = at_angles(entry, {0.05, 1.0, 2.0, kPi - 0.05});
    const auto samples = everything(entry);
    const HeadStep step = dense_head(entry, values, samples);
    const auto quotient = [&](double& x) {
      const double before = x;
      constexpr double kStep = 1e-6;
      x = before + kStep;
      const double above = dense_head(entry, values, samples).loss;
      x = before - kStep;
      const double below = dense_head(entry, values, samples).loss;
      x = before;
      return (above - below) / (2 * kStep);
    };
    Values quotients;
    for (double& value : values.embeddings) quotients.push_back(quotient(value));
    quotients = across(values.embeddings, quotients, entry.dimension);
    for (size_t i = 0; i < quotients.size(); ++i) {
      EXPECT_NEAR(step.of_embeddings[i], quotients[i], 1e-5);
    }
    for (size_t i = 0; i < values.centres.size(); ++i) {
      const double gradient = values.centres[i] * (1 - 0.01) - step.centres[i];
      EXPECT_NEAR(gradient, quotient(values.centres[i]), 1e-4);
    }
  }
}

// One sample's logits reach from -64 to 64; the dense reference sums them at once in double.
TEST(MarginHead, BlockedSoftmaxOverTheWholeRangeOfLogits) {
  HeadCase entry = {.batch = 5, .dimension = 4, .classes = 3000, .addend = 0};
  HeadValues values = random_head(entry, 8);
  for (int64_t j = 0; j < entry.classes; ++j) {
    const double angle = std::numbers::pi * static_cast<double>(j) / 2999;
    const double centre[] = {std::cos(angle), std::sin(angle), 0, 0};
    for (int64_t d = 0; d < 4; ++d) {
      values.centres[static_cast<size_t>(j * 4 + d)] = static_cast<float>(centre[d]);
    }
  }
  for (size_t d = 0; d < 4; ++d) {
    values.embeddings[d] = d == 0 ? 1 : 0;
    values.embeddings[4 + d] = d == 0 ? -1 : 0;
  }
  for (const int threads : {1, 2}) {
    entry.threads = threads;
    checked(entry, values);
  }
  entry.shards = 3;
  checked(entry, values);
}

TEST(MarginHead, ACentreOfZerosHasNoDirection) {
  HeadCase entry = {.batch = 3, .dimension = 4, .classes = 6};
  HeadValues values = random_head(entry, 9);
  std::fill_n(values.centres.begin(), 8, 0.0);
  values.labels = {0, 2, 3};
  const HeadStep step = run_head(entry, values);
  EXPECT_TRUE(std::isfinite(step.loss));
  for (const double w : step.centres) EXPECT_TRUE(std::isfinite(w));
}

TEST(MarginHead, NanReachesTheLoss) {
  HeadCase entry = {.batch = 3, .dimension = 4, .classes = 60};
  for (const bool in_centres : {false, true}) {
    HeadValues values = random_head(entry, 10);
    (in_centres ? values.centres[20] : values.embeddings[5]) = std::nan("");
    EXPECT_FALSE(std::isfinite(run_head(entry, values).loss));
  }
}

TEST(MarginHead, LabelsMustBeClasses) {
  HeadCase entry = {.batch = 3, .dimension = 4, .classes = 60};
  for (const double wrong : {-1.0, 60.0, 2147483647.0}) {
    for (const double rate : {1.0, 0.1}) {
      HeadValues values = random_head(entry, 10);
      values.labels[1] = wrong;
      entry.sample_rate = rate;
      try {
        run_head(entry, values);
        ADD_FAILURE() << wrong;
      } catch (const InputError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("Sample 1 of the batch has the label"));
        EXPECT_THAT(error.what(), ::testing::HasSubstr("one of the 60 classes"));
      }
    }
  }
}

// Rows of four numbers, each with none for the margins of its own that a sample may have.
Values with_no_margins(const Values& rows) {
  Values all;
  for (size_t i = 0; i < rows.size(); ++i) {
    all.push_back(rows[i]);
    if (i % 4 == 3) all.insert(all.end(), static_cast<size_t>(graph::kHeadStatistics - 4), 0);
  }
  return all;
}

TEST(MarginHead, LossScalesWithTheGradientThatArrives) {
  const SingleOperator single("margin_head_loss_backward", {},
                              {{{1}, graph::DataType::f32},
                               {{4, graph::kHeadStatistics}, graph::DataType::f32},
                               {{2, 2}, graph::DataType::f32}});
  const double nowhere = graph::kElsewhere;
  const Values statistics = {1,  2, 0.5,     0.6,     0, 1, nowhere, nowhere,
                             -1, 3, nowhere, nowhere, 0, 0, 2,       3};
  const kernels::KernelOptions options;
  const kernels::KernelRequest request = single.request(options);
  const KernelRun run = run_kernel(*kernels::make_kernel(request), request,
                                   {{8}, with_no_margins(statistics), {2, 0.25, 3, 0.5}});
  Values expected = with_no_margins({0, 4 * std::exp(-1), -1, 0, 0, 4 * std::exp(-3), 0, 0, 0,
                                     4 * std::exp(-3), 0, 0, 0, 0, -2, 0});
  for (const size_t own : {0, 3}) {  // what a sample's loss has beside the rest counts as it is
    expected[(own + 1) * graph::kHeadStatistics - 1] = 4;
  }
  EXPECT_EQ(difference(run.outputs[0], expected, 1e-6), "");
}

}  // namespace
}  // namespace millrace::testing
