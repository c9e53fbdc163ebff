#include "train/faces/verification.h"

#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <cstdio>

#include "base/json.h"
#include "base/random.h"
#include "support.h"

namespace millrace::train {
namespace {

using ::testing::HasSubstr;

constexpr size_t kFeatures = 6;

void append_unit(std::vector<float>& rows, const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  for (const double value : values) rows.push_back(static_cast<float>(value / std::sqrt(squares)));
}

struct Pairs {
  std::vector<float> embeddings;
  std::vector<bool> same;
};

// Pairs whose second image is the first with noise, or another.
Pairs noisy_pairs(size_t count, double noise) {
  const Random random(3, 5);
  uint64_t draw = 0;
  Pairs pairs;
  for (size_t i = 0; i < count; ++i) {
    const bool same = random.uniform(draw++) < 0.4f;
    std::vector<double> first, second;
    for (size_t f = 0; f < kFeatures; ++f) first.push_back(random.normal(draw++));
    for (size_t f = 0; f < kFeatures; ++f) {
      second.push_back((same ? first[f] : 0) + noise * random.normal(draw++));
    }
    append_unit(pairs.embeddings, first);
    append_unit(pairs.embeddings, second);
    pairs.same.push_back(same);
  }
  return pairs;
}

class VerificationTest : public DirectoryTest {
 protected:
  // The figures as NumPy gives them, from the definitions.
  Json reference(const Pairs& pairs) const {
    Json data;
    data["embeddings"] = pairs.embeddings;
    data["same"] = pairs.same;
    write_text(directory_ / "pairs.json", data.dump());
    const std::string command = "/usr/bin/python3 -B '" MILLRACE_TEST_DATA
                                "/verification_reference.py' '" +
                                (directory_ / "pairs.json").string() + "'";
    FILE* pipe = ::popen(command.c_str(), "r");
    if (pipe == nullptr) fail_job("Cannot start Python.");
    std::array<char, 4096> buffer = {};
    const size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe);
    EXPECT_EQ(::pclose(pipe), 0);
    return Json::parse(std::string(buffer.data(), count));
  }
};

TEST_F(VerificationTest, AgreesWithNumPy) {
  for (const size_t count : {10u, 57u, 6000u}) {
    for (const double noise : {0.3, 1.0}) {
      const Pairs pairs = noisy_pairs(count, noise);
      const Json expected = reference(pairs);
      const VerificationReport report = verify_pairs(pairs.embeddings, pairs.same);
      EXPECT_EQ(report.pairs, static_cast<int64_t>(count));
      EXPECT_NEAR(report.accuracy, expected["accuracy"].get<double>(), 1e-12) << count;
      EXPECT_NEAR(report.deviation, expected["deviation"].get<double>(), 1e-12) << count;
      EXPECT_NEAR(report.threshold, expected["threshold"].get<double>(), 1e-12) << count;
      EXPECT_NEAR(report.auc, expected["auc"].get<double>(), 1e-9) << count;
      ASSERT_EQ(report.rates.size(), 4u);
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(report.rates[i].far, std::pow(10.0, -2.0 - static_cast<double>(i)), 1e-12);
        EXPECT_NEAR(report.rates[i].tar, expected["tar"][i].get<double>(), 1e-12) << count;
      }
    }
  }
}

TEST_F(VerificationTest, PerfectEmbeddingsArePerfect) {
  Pairs pairs;
  for (int i = 0; i < 40; ++i) {
    append_unit(pairs.embeddings, {1, 0});
    append_unit(pairs.embeddings,
                i % 2 == 0 ? std::vector<double>{1, 0.01} : std::vector<double>{0, 1});
    pairs.same.push_back(i % 2 == 0);
  }
  const VerificationReport report = verify_pairs(pairs.embeddings, pairs.same);
  EXPECT_EQ(report.accuracy, 1);
  EXPECT_EQ(report.deviation, 0);
  for (const AcceptRate& rate : report.rates) {
    EXPECT_EQ(rate.tar, 1);
    EXPECT_FALSE(rate.resolved);
  }
}

TEST_F(VerificationTest, RefusesWhatHasNoAnswer) {
  Pairs pairs = noisy_pairs(9, 0.5);
  EXPECT_THAT(input_error_of([&] { verify_pairs(pairs.embeddings, pairs.same); }),
              HasSubstr("9 pairs"));
  pairs = noisy_pairs(30, 0.5);
  EXPECT_THAT(input_error_of([&] { verify_pairs(pairs.embeddings, std::vector<bool>(30, true)); }),
              HasSubstr("the same person"));
  pairs.embeddings[5] = NAN;
  EXPECT_THAT(input_error_of([&] { verify_pairs(pairs.embeddings, pairs.same); }),
              HasSubstr("not finite"));
}

TEST(Identification, LooksUpProbesInTheGallery) {
  std::vector<float> rows;
  const std::vector<int32_t> labels = {7, 3, 7, 3, 9, 7};
  append_unit(rows, {1, 0});
  append_unit(rows, {0, 1});
  append_unit(rows, {0.9, 0.1});   // right
  append_unit(rows, {0.8, 0.5});   // wrong: nearer to 7
  append_unit(rows, {-1, 0});      // the only image of 9
  append_unit(rows, {-0.9, 0.3});  // wrong: nearer to 9
  const IdentificationReport report = identify(rows, labels, 2);
  EXPECT_EQ(report.gallery, 3);
  EXPECT_EQ(report.probes, 3);
  EXPECT_NEAR(report.rank1, 1.0 / 3, 1e-12);
  // Without their own identity the probes come as near to others as 0.11, 0.85 and 0.95; the first
  // is as near to its own as 0.99.
  ASSERT_EQ(report.rates.size(), 3u);
  for (const AcceptRate& rate : report.rates) {
    EXPECT_NEAR(rate.threshold, 0.9 / std::sqrt(0.9), 1e-6);
    EXPECT_NEAR(rate.tar, 1.0 / 3, 1e-12);
    EXPECT_FALSE(rate.resolved);
  }
  EXPECT_THAT(input_error_of([&] {
                identify(rows, std::vector<int32_t>{1, 2, 3, 4, 5, 6}, 2);
              }),
              HasSubstr("second image"));
}

// Every probe is looked up twice: with its own identity in the gallery, and without.
TEST(Identification, RatesAreThoseOfTheDefinition) {
  constexpr int kPeople = 40, kImages = 6;
  constexpr size_t kWidth = 5;
  const Random random(3, 1);
  std::vector<float> rows;
  std::vector<int32_t> labels;
  uint64_t drawn = 0;
  std::vector<std::vector<double>> people(kPeople, std::vector<double>(kWidth));
  for (auto& person : people) {
    for (double& value : person) value = random.normal(drawn++);
  }
  for (int image = 0; image < kImages; ++image) {
    for (int32_t label = 0; label < kPeople; ++label) {
      std::vector<double> row = people[static_cast<size_t>(label)];
      for (double& value : row) value += 0.5 * random.normal(drawn++);
      append_unit(rows, row);
      labels.push_back(label);
    }
  }
  const auto similarity = [&](size_t a, size_t b) {
    double sum = 0;
    for (size_t i = 0; i < kWidth; ++i) {
      sum += static_cast<double>(rows[a * kWidth + i]) * rows[b * kWidth + i];
    }
    return sum;
  };
  std::vector<double> strangers, mates;
  for (size_t probe = kPeople; probe < labels.size(); ++probe) {
    double best = -2;
    for (size_t other = 0; other < kPeople; ++other) {
      if (labels[other] != labels[probe]) best = std::max(best, similarity(probe, other));
    }
    const double own = similarity(probe, static_cast<size_t>(labels[probe]));
    strangers.push_back(best);
    mates.push_back(own > best ? own : -2);
  }
  const IdentificationReport report = identify(rows, labels, kWidth);
  const auto probes = static_cast<double>(mates.size());
  EXPECT_GT(report.rank1, 0.3);
  for (const AcceptRate& rate : report.rates) {
    double found = 0, mistaken = 0;
    for (const double own : mates) found += own > rate.threshold ? 1 : 0;
    for (const double best : strangers) mistaken += best > rate.threshold + 1e-6 ? 1 : 0;
    EXPECT_NEAR(rate.tar, found / probes, 0.011) << rate.far;
    EXPECT_LE(mistaken / probes, rate.far + 1e-12) << rate.far;
    EXPECT_GT((mistaken + 1.5) / probes, std::min(rate.far, 1 - 1e-9)) << rate.far;
  }
}

}  // namespace
}  // namespace millrace::train
