#include "data/image/transform.h"

#include <gtest/gtest.h>

#include <cmath>

#include "data/image/jpeg.h"
#include "data/image/resize.h"
#include "images.h"

namespace millrace::data {
namespace {

// The triangle filter straight from its definition, in double precision.
double reference_pixel(const ImageView& view, const PixelRegion& region, int height, int width,
                       int y, int x, int c) {
  const double scale_x = region.width / width;
  const double scale_y = region.height / height;
  const double centre_x = region.left + (x + 0.5) * scale_x;
  const double centre_y = region.top + (y + 0.5) * scale_y;
  double sum = 0;
  double total = 0;
  for (int j = static_cast<int>(region.top); j < std::ceil(region.top + region.height); ++j) {
    for (int i = static_cast<int>(region.left); i < std::ceil(region.left + region.width); ++i) {
      const double weight =
          std::max(0.0, 1 - std::abs(j + 0.5 - centre_y) / std::max(1.0, scale_y)) *
          std::max(0.0, 1 - std::abs(i + 0.5 - centre_x) / std::max(1.0, scale_x));
      sum += weight * view.row(j)[i * view.channels + c];
      total += weight;
    }
  }
  return sum / total;
}

TEST(Resize, MatchesTheDefinition) {
  const std::vector<std::pair<PixelRegion, std::pair<int, int>>> cases = {
      {{0, 0, 61, 47}, {47, 61}}, {{0, 0, 61, 47}, {20, 13}},          {{10, 5, 20, 30}, {64, 64}},
      {{3, 2, 50, 40}, {31, 49}}, {{2.5, 1.25, 33.5, 40.5}, {16, 16}}, {{60, 46, 1, 1}, {3, 3}}};
  for (const int channels : {1, 3}) {
    const Image image = smooth_image(47, 61, channels, 0.4);
    for (const auto& [region, size] : cases) {
      const auto [height, width] = size;
      ResizeWorkspace workspace;
      int rows = 0;
      const auto row = [&](int y, float* pixels) {
        EXPECT_EQ(y, rows++);
        for (int x = 0; x < width; ++x) {
          for (int c = 0; c < channels; ++c) {
            ASSERT_NEAR(pixels[x * resize_lanes(channels) + c],
                        reference_pixel(image.view(), region, height, width, y, x, c), 1e-3);
          }
        }
      };
      resize(image.view(), region, height, width, false, Surroundings::cut, workspace, row);
      EXPECT_EQ(rows, height);
    }
  }
}

TransformOptions plain(int height, int width, int channels) {
  TransformOptions options;
  options.height = height;
  options.width = width;
  options.channels = channels;
  options.crop = CropKind::whole;
  return options;
}

TEST(Transform, NormalisesIntoEitherLayout) {
  const Image image = smooth_image(6, 9, 3);
  TransformOptions options = plain(6, 9, 3);
  std::vector<float> planar(6 * 9 * 3);
  std::vector<float> interleaved(planar.size());
  Transformer(options).apply(sample_of(image, 0), Random(1, 2), planar.data());
  options.layout = PixelLayout::nhwc;
  Transformer(options).apply(sample_of(image, 0), Random(1, 2), interleaved.data());
  for (size_t y = 0; y < 6; ++y) {
    for (size_t x = 0; x < 9; ++x) {
      for (size_t c = 0; c < 3; ++c) {
        const float pixel = image.pixels[(y * 9 + x) * 3 + c];
        const float expected = (pixel / 255 - options.mean[c]) / options.deviation[c];
        EXPECT_NEAR(planar[(c * 6 + y) * 9 + x], expected, 1e-5);
        EXPECT_EQ(interleaved[(y * 9 + x) * 3 + c], planar[(c * 6 + y) * 9 + x]);
      }
    }
  }
}

TEST(Transform, FaceRecipeIsItsFormulaAndFlipsHalf) {
  const Image image = smooth_image(112, 112, 3);
  std::vector<float> values(112 * 112 * 3);
  Transformer transformer(face_training());
  int flipped = 0;
  for (uint64_t draw = 0; draw < 200; ++draw) {
    transformer.apply(sample_of(image, 0), Random(7, draw), values.data());
    const auto expected = [&](size_t x) {
      return (static_cast<float>(image.pixels[x * 3]) - 127.5f) / 127.5f;
    };
    const bool mirrored = std::abs(values[0] - expected(0)) > 1e-5f;
    flipped += mirrored ? 1 : 0;
    for (size_t x = 0; x < 112; ++x) ASSERT_NEAR(values[x], expected(mirrored ? 111 - x : x), 1e-5);
  }
  EXPECT_NEAR(flipped, 100, 35);
}

TEST(Transform, PadAndShiftMovesThePictureOverBlack) {
  Image image{8, 8, 1, std::vector<uint8_t>(64, 0)};
  image.pixels[3 * 8 + 4] = 255;
  TransformOptions options = small_training(8, 1);
  options.padding = 2;
  options.flip = false;
  Transformer transformer(options);
  std::vector<int> seen(25);
  for (uint64_t draw = 0; draw < 1000; ++draw) {
    std::vector<float> values(64);
    transformer.apply(sample_of(image, 0), Random(7, draw), values.data());
    int bright = 0;
    for (int i = 0; i < 64; ++i) {
      const float value = values[static_cast<size_t>(i)] * options.deviation[0] + options.mean[0];
      if (value < 0.5f) {
        EXPECT_NEAR(value, 0, 1e-5);
        continue;
      }
      ++bright;
      const int shift_y = i / 8 - 3 + 2;
      const int shift_x = i % 8 - 4 + 2;
      ++seen.at(static_cast<size_t>(shift_y * 5 + shift_x));
    }
    EXPECT_EQ(bright, 1);
  }
  for (const int count : seen) EXPECT_NEAR(count, 40, 30);
}

TEST(Transform, RandomRegionsHaveTheAreasAndRatiosAskedFor) {
  const TransformOptions options = photograph_training(224);
  double area_sum = 0;
  for (uint64_t draw = 0; draw < 5000; ++draw) {
    const PixelRegion region = choose_region(options, 375, 500, Random(1, draw));
    EXPECT_GE(region.left, 0);
    EXPECT_GE(region.top, 0);
    EXPECT_LE(region.left + region.width, 500);
    EXPECT_LE(region.top + region.height, 375);
    const double area = region.width * region.height / (375.0 * 500);
    EXPECT_GT(area, 0.075);
    EXPECT_LT(region.width / region.height, 1.37);
    EXPECT_GT(region.width / region.height, 0.73);
    area_sum += area;
  }
  EXPECT_NEAR(area_sum / 5000, 0.46, 0.03);  // below 0.54, as large upright crops do not fit
  const PixelRegion strip = choose_region(options, 10, 1000, Random(1, 1));
  EXPECT_EQ(strip.height, 10);
  EXPECT_NEAR(strip.width, 13, 0.5);
  EXPECT_NEAR(strip.left + strip.width / 2, 500, 1);
}

TEST(Transform, CentreCropTakesTheMiddle) {
  const PixelRegion region = choose_region(photograph_evaluation(224), 375, 500, Random(0, 0));
  EXPECT_NEAR(region.width, 224 * 375.0 / 256, 0.5);
  EXPECT_NEAR(region.height, 224 * 375.0 / 256, 0.5);
  EXPECT_NEAR(region.left + region.width / 2, 250, 1);
  EXPECT_NEAR(region.top + region.height / 2, 187.5, 1);
}

TEST(Transform, JpegPathAgreesWithFullDecoding) {
  const Image image = smooth_image(600, 900, 3);
  const auto encoded = encode_jpeg(image.view(), 95);
  const TransformOptions options = photograph_training(64);
  Transformer transformer(options);
  std::vector<float> from_jpeg(static_cast<size_t>(options.values()));
  std::vector<float> from_pixels(from_jpeg.size());
  for (uint64_t draw = 0; draw < 20; ++draw) {
    transformer.apply(sample_of(encoded, 0), Random(3, draw), from_jpeg.data());
    transformer.apply(sample_of(image, 0), Random(3, draw), from_pixels.data());
    double sum = 0;
    for (size_t i = 0; i < from_jpeg.size(); ++i) sum += std::abs(from_jpeg[i] - from_pixels[i]);
    EXPECT_LT(sum / static_cast<double>(from_jpeg.size()), 0.03) << draw;
  }
}

TEST(Transform, JitterIsBoundedAndDrawn) {
  const Image image = smooth_image(16, 16, 3);
  TransformOptions options = plain(16, 16, 3);
  options.mean = {0, 0, 0};
  options.deviation = {1, 1, 1};
  options.jitter = {.brightness = 0.4f, .contrast = 0, .saturation = 0};
  std::vector<float> values(16 * 16 * 3);
  Transformer transformer(options);
  float lowest = 10;
  float highest = 0;
  for (uint64_t draw = 0; draw < 300; ++draw) {
    transformer.apply(sample_of(image, 0), Random(3, draw), values.data());
    const float original = static_cast<float>(image.pixels[0]) / 255;
    const float factor = values[0] / original;
    if (values[0] < 0.999f) {
      EXPECT_NEAR(values[1], static_cast<float>(image.pixels[3]) / 255 * factor, 1e-3);
    }
    lowest = std::min(lowest, factor);
    highest = std::max(highest, factor);
    for (const float value : values) EXPECT_LE(value, 1.0001f);
  }
  EXPECT_NEAR(lowest, 0.6, 0.02);
  EXPECT_GT(highest, 1.2);
  options.jitter = {.brightness = 0, .contrast = 0, .saturation = 1.0f};
  Transformer saturation(options);
  saturation.apply(sample_of(image, 0), Random(3, 5), values.data());
  const auto gray = [](double r, double g, double b) { return 0.299 * r + 0.587 * g + 0.114 * b; };
  EXPECT_NEAR(gray(values[0], values[256], values[512]),
              gray(image.pixels[0], image.pixels[1], image.pixels[2]) / 255, 0.01);
}

}  // namespace
}  // namespace millrace::data
