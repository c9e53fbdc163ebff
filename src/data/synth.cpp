#include "data/synth.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/random.h"
#include "data/image/jpeg.h"

namespace millrace::data {
namespace {

constexpr uint64_t kClassStream = 0x636C617373;
constexpr uint64_t kPictureStream = 0x70696374;
constexpr int kOctaves = 5;

// What every picture of a class has in common.
struct Style {
  std::array<float, 3> ground;
  std::array<float, 3> ink;
  float angle;
  float frequency;  // waves across the shorter side
  int shape;        // 0 disc, 1 square, 2 ring
};

Style style_of(int64_t label) {
  const Random random(kClassStream, static_cast<uint64_t>(label));
  Style style = {};
  for (size_t c = 0; c < 3; ++c) {
    style.ground[c] = 70 + 110 * random.uniform(c);
    style.ink[c] = 40 + 180 * random.uniform(3 + c);
  }
  style.angle = std::numbers::pi_v<float> * random.uniform(6);
  style.frequency = 3 + 12 * random.uniform(7);
  style.shape = static_cast<int>(random.uniform(8) * 3);
  return style;
}

float lattice(uint64_t key, int x, int y) {
  const uint64_t cell =
      static_cast<uint64_t>(static_cast<uint32_t>(x)) << 32 | static_cast<uint32_t>(y);
  return static_cast<float>(hash_combine(key, cell) >> 40) * 0x1.0p-24f - 0.5f;
}

// Smooth noise: random values on a grid of `cell` pixels, interpolated; added to `field`.
void add_noise(std::vector<float>& field, int height, int width, float cell, float strength,
               uint64_t key) {
  std::vector<float> upper(static_cast<size_t>(static_cast<float>(width) / cell) + 3);
  std::vector<float> lower(upper.size());
  int current = -1;
  for (int y = 0; y < height; ++y) {
    const float at_y = static_cast<float>(y) / cell;
    const int row = static_cast<int>(at_y);
    if (row != current) {
      for (size_t i = 0; i < upper.size(); ++i) {
        upper[i] = lattice(key, static_cast<int>(i), row);
        lower[i] = lattice(key, static_cast<int>(i), row + 1);
      }
      current = row;
    }
    const float part_y = at_y - static_cast<float>(row);
    for (int x = 0; x < width; ++x) {
      const float at_x = static_cast<float>(x) / cell;
      const auto column = static_cast<size_t>(at_x);
      const float part_x = at_x - static_cast<float>(column);
      const float above = upper[column] + (upper[column + 1] - upper[column]) * part_x;
      const float below = lower[column] + (lower[column + 1] - lower[column]) * part_x;
      field[static_cast<size_t>(y) * width + x] += strength * (above + (below - above) * part_y);
    }
  }
}

// 1 inside the shape, 0 outside; x and y are relative to its centre in units of its radius.
float coverage(int shape, float x, float y) {
  if (shape == 1) return std::abs(x) < 0.8f && std::abs(y) < 0.8f ? 1.0f : 0.0f;
  const float distance = x * x + y * y;
  if (shape == 0) return distance < 1 ? 1.0f : 0.0f;
  return distance < 1 && distance > 0.4f ? 1.0f : 0.0f;
}

struct Placed {
  float x;
  float y;
  float radius;
};

}  // namespace

Image synthesise_image(const SynthOptions& options, uint64_t index) {
  const int height = options.height;
  const int width = options.width;
  const Style style =
      style_of(static_cast<int64_t>(index % static_cast<uint64_t>(options.classes)));
  const uint64_t stream = hash_combine(kPictureStream, index);
  const Random random(options.seed, stream);
  const uint64_t key = hash_combine(options.seed, stream);
  const auto shorter = static_cast<float>(std::min(height, width));

  std::vector<float> texture(static_cast<size_t>(height) * width);
  float cell = std::max(2.0f, shorter / 4);
  for (int octave = 0; octave < kOctaves && cell >= 2; ++octave, cell /= 2.2f) {
    add_noise(texture, height, width, cell, 90.0f / static_cast<float>(octave + 1),
              key + static_cast<uint64_t>(octave));
  }
  std::array<Placed, 3> shapes = {};
  for (size_t i = 0; i < shapes.size(); ++i) {
    shapes[i] = {random.uniform(3 * i) * static_cast<float>(width),
                 random.uniform(3 * i + 1) * static_cast<float>(height),
                 shorter * (0.12f + 0.16f * random.uniform(3 * i + 2))};
  }
  const float angle = style.angle + 0.3f * (random.uniform(10) - 0.5f);
  const float wave = 2 * std::numbers::pi_v<float> * style.frequency / shorter;
  const float phase = 2 * std::numbers::pi_v<float> * random.uniform(11);
  const float light = 0.75f + 0.5f * random.uniform(12);

  Image image{height, width, options.channels, {}};
  image.pixels.reserve(texture.size() * static_cast<size_t>(options.channels));
  uint64_t grain = 0;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const auto fx = static_cast<float>(x);
      const auto fy = static_cast<float>(y);
      float inside = 0;
      for (const Placed& placed : shapes) {
        inside = std::max(inside, coverage(style.shape, (fx - placed.x) / placed.radius,
                                           (fy - placed.y) / placed.radius));
      }
      const float stripes =
          22 * std::sin(phase + wave * (fx * std::cos(angle) + fy * std::sin(angle)));
      if ((x & 7) == 0) grain = hash_combine(key, static_cast<uint64_t>(y) * width + x);
      const float noise = static_cast<float>((grain >> (8 * (x & 7))) & 0xFF) / 16.0f - 8;
      const float shade = texture[static_cast<size_t>(y) * width + x] + stripes + noise;
      for (size_t c = 0; c < static_cast<size_t>(options.channels); ++c) {
        const float base = style.ground[c] + inside * (style.ink[c] - style.ground[c]);
        image.pixels.push_back(
            static_cast<uint8_t>(std::clamp(light * base + shade, 0.0f, 255.0f)));
      }
    }
  }
  return image;
}

void synthesise(const SynthOptions& options, RecordWriter& writer, bool as_pixels) {
  if (options.classes < 1 || options.height < 1 || options.width < 1 ||
      int64_t{options.height} * options.width > kMaxPixels || options.quality < 1 ||
      options.quality > 100 || (options.channels != 1 && options.channels != 3)) {
    fail_input(
        "A synthetic set needs at least one class, a size of at least 1 × 1, 1 or 3 channels "
        "and a quality from 1 to 100.");
  }
  for (uint64_t index = 0; index < options.count; ++index) {
    const Image image = synthesise_image(options, index);
    Sample sample;
    sample.label = static_cast<int64_t>(index % static_cast<uint64_t>(options.classes));
    if (as_pixels) {
      sample.bytes = std::as_bytes(std::span(image.pixels));
      sample.height = image.height;
      sample.width = image.width;
      sample.channels = image.channels;
    } else {
      sample.storage = encode_jpeg(image.view(), options.quality);
      sample.bytes = sample.storage;
    }
    writer.add(sample);
  }
  writer.finish();
}

}  // namespace millrace::data
