#include "train/worst_samples.h"

#include <cmath>

#include "data/image/png.h"
#include "support.h"
#include "train/evaluation.h"

namespace millrace::train {
namespace {

constexpr int64_t kSamples = 23, kClasses = 3;

TrainJob job_of(int64_t image, int64_t most) {
  TrainJob job;
  job.model = "fashion_cnn";
  job.options.image = image;
  job.options.channels = 1;
  job.options.classes = kClasses;
  job.worst_samples = most;
  job.class_names = {"cat", "dog"};
  job.data.mean = {{0.5f, 0.5f, 0.5f}};
  job.data.deviation = {{0.25f, 0.25f, 0.25f}};
  return job;
}

std::vector<WorstSample> worst_of(const TrainJob& job, int64_t batch) {
  const int64_t pixels = job.options.image * job.options.image;
  WorstSamples worst(job);
  Scores scores(kClasses);
  scores.worst = &worst;
  for (int64_t first = 0; first < kSamples; first += batch) {
    std::vector<float> logits, images;
    std::vector<int32_t> labels;
    for (int64_t i = first; i < first + batch; ++i) {
      for (int64_t c = 0; c < kClasses; ++c) {
        logits.push_back(static_cast<float>(std::sin(static_cast<double>(7 * i + 3 * c))));
      }
      labels.push_back(i < kSamples ? static_cast<int32_t>(i % kClasses) : kNoLabel);
      images.insert(images.end(), static_cast<size_t>(pixels), static_cast<float>(i % 5) / 2 - 1);
    }
    add_scores(scores, logits, labels, kClasses, {images, first});
  }
  return worst.take([](int64_t index) { return "file " + std::to_string(index); });
}

TEST(WorstSamples, AreThoseWithTheLargestLossHoweverTheyAreCut) {
  std::vector<std::pair<double, int64_t>> losses;
  for (int64_t i = 0; i < kSamples; ++i) {
    double sum = 0;
    for (int64_t c = 0; c < kClasses; ++c)
      sum += std::exp(std::sin(7.0 * static_cast<double>(i) + 3.0 * static_cast<double>(c)));
    losses.emplace_back(
        std::sin(7.0 * static_cast<double>(i) + 3.0 * static_cast<double>(i % kClasses)) -
            std::log(sum),
        i);
  }
  std::sort(losses.begin(), losses.end());
  for (const int64_t batch : {4, 7, 23}) {
    const std::vector<WorstSample> found = worst_of(job_of(4, 5), batch);
    ASSERT_EQ(found.size(), 5u);
    for (size_t i = 0; i < found.size(); ++i) {
      const auto [loss, index] = losses[i];
      EXPECT_EQ(found[i].index, index);
      EXPECT_NEAR(found[i].own_share(), std::exp(loss), 1e-6);
      EXPECT_EQ(found[i].place, "file " + std::to_string(index));
      EXPECT_EQ(found[i].name, index % 3 == 0 ? "cat" : index % 3 == 1 ? "dog" : "2");
      EXPECT_EQ(
          found[i].image.pixels[0],
          static_cast<uint8_t>((static_cast<double>(index % 5) / 2.0 - 1) * 0.25 * 255 + 128));
    }
  }
}

TEST(WorstSamples, ImagesAreMadeSmallAndTravelAsPng) {
  const std::vector<WorstSample> found = worst_of(job_of(100, 40), 6);
  EXPECT_EQ(found.size(), static_cast<size_t>(kSamples));
  EXPECT_EQ(found[0].image.height, 50);
  std::vector<uint8_t> storage;
  const data::ImageView view = data::decode_png(png_of(found[0]), 1, storage);
  EXPECT_EQ(std::vector<uint8_t>(view.pixels, view.pixels + 2500), found[0].image.pixels);
  const Json json = wrong_to_json(found);
  for (const Json& entry : json) EXPECT_NE(entry["name"], entry["taken_for"]);
  EXPECT_TRUE(
      json[0]["picture"].get<std::string>().starts_with("data:image/png;base64,iVBORw0KGgo"));
}

}  // namespace
}  // namespace millrace::train
