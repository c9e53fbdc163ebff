#include "data/image/rand_augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace millrace::data {
namespace {

constexpr std::array<std::string_view, 14> kOperations = {
    "Identity", "ShearX",   "ShearY",    "TranslateX", "TranslateY", "Rotate",       "Brightness",
    "Color",    "Contrast", "Sharpness", "Posterize",  "Solarize",   "AutoContrast", "Equalize"};

constexpr int kLevels = 256;

int colours_of(const LevelImage& image) { return image.lanes == 1 ? 1 : 3; }
size_t pixels_of(const LevelImage& image) {
  return static_cast<size_t>(image.height) * static_cast<size_t>(image.width);
}

// Whole levels, cut off as bytes are.
float to_level(float value) { return std::floor(std::clamp(value, 0.0f, 255.0f)); }

float grey_level(const LevelImage& image, size_t pixel) {
  const float* p = &image.pixels[pixel * static_cast<size_t>(image.lanes)];
  return image.lanes == 1 ? p[0] : std::floor(0.2989f * p[0] + 0.587f * p[1] + 0.114f * p[2]);
}

// Each pixel is the one that lies nearest to (x, y) → source(x, y); black comes from outside.
template <typename Source>
void move_pixels(const LevelImage& image, std::vector<float>& scratch, const Source& source) {
  scratch.assign(image.pixels.begin(), image.pixels.end());
  const auto lanes = static_cast<size_t>(image.lanes);
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      const auto [from_x, from_y] = source(static_cast<float>(x), static_cast<float>(y));
      const auto column = static_cast<int>(std::nearbyint(from_x));
      const auto row = static_cast<int>(std::nearbyint(from_y));
      const bool inside = column >= 0 && column < image.width && row >= 0 && row < image.height;
      float* to = &image.pixels[static_cast<size_t>(y * image.width + x) * lanes];
      if (inside) {
        std::copy_n(&scratch[static_cast<size_t>(row * image.width + column) * lanes], lanes, to);
      } else {
        std::fill_n(to, lanes, 0.0f);
      }
    }
  }
}

void rotate(const LevelImage& image, float degrees, std::vector<float>& scratch) {
  const float angle = -degrees * std::numbers::pi_v<float> / 180;
  const float cosine = std::cos(angle);
  const float sine = std::sin(angle);
  const float middle_x = (static_cast<float>(image.width) - 1) / 2;
  const float middle_y = (static_cast<float>(image.height) - 1) / 2;
  move_pixels(image, scratch, [&](float x, float y) {
    const float across = x - middle_x;
    const float down = y - middle_y;
    return std::pair(cosine * across + sine * down + middle_x,
                     -sine * across + cosine * down + middle_y);
  });
}

// level ← factor · level + (1 − factor) · other(pixel, colour).
template <typename Other>
void blend(const LevelImage& image, double factor, const Other& other) {
  const auto own = static_cast<float>(factor);
  const auto rest = static_cast<float>(1 - factor);
  for (size_t i = 0; i < pixels_of(image); ++i) {
    for (size_t c = 0; c < static_cast<size_t>(colours_of(image)); ++c) {
      float& level = image.pixels[i * static_cast<size_t>(image.lanes) + c];
      level = to_level(own * level + rest * other(i, c));
    }
  }
}

void change_contrast(const LevelImage& image, double factor) {
  double sum = 0;
  for (size_t i = 0; i < pixels_of(image); ++i) sum += grey_level(image, i);
  const auto mean = static_cast<float>(sum / static_cast<double>(pixels_of(image)));
  blend(image, factor, [&](size_t, size_t) { return mean; });
}

void change_colour(const LevelImage& image, double factor) {
  if (image.lanes == 1) return;
  const auto own = static_cast<float>(factor);
  const auto rest = static_cast<float>(1 - factor);
  for (size_t i = 0; i < pixels_of(image); ++i) {
    const float grey = grey_level(image, i);
    for (size_t c = 0; c < 3; ++c) {
      float& level = image.pixels[i * static_cast<size_t>(image.lanes) + c];
      level = to_level(own * level + rest * grey);
    }
  }
}

// Against each pixel averaged with its neighbours, itself counted five times; the border stays.
void sharpen(const LevelImage& image, double factor, std::vector<float>& scratch) {
  if (image.height <= 2 || image.width <= 2) return;
  scratch.assign(image.pixels.begin(), image.pixels.end());
  const auto lanes = static_cast<size_t>(image.lanes);
  const auto width = static_cast<size_t>(image.width);
  blend(image, factor, [&](size_t pixel, size_t c) {
    const size_t y = pixel / width;
    const size_t x = pixel % width;
    const auto level = [&](size_t row, size_t column) {
      return scratch[(row * width + column) * lanes + c];
    };
    if (y == 0 || x == 0 || y + 1 == static_cast<size_t>(image.height) || x + 1 == width) {
      return level(y, x);
    }
    float sum = 4 * level(y, x);
    for (size_t row = y - 1; row <= y + 1; ++row) {
      for (size_t column = x - 1; column <= x + 1; ++column) sum += level(row, column);
    }
    return std::nearbyint(sum / 13);
  });
}

// Every level by a table of its own colour.
template <typename MakeTable>
void map_levels(const LevelImage& image, const MakeTable& make_table) {
  for (size_t c = 0; c < static_cast<size_t>(colours_of(image)); ++c) {
    std::array<int64_t, kLevels> counts = {};
    for (size_t i = 0; i < pixels_of(image); ++i) {
      ++counts[static_cast<size_t>(image.pixels[i * static_cast<size_t>(image.lanes) + c])];
    }
    const std::array<float, kLevels> table = make_table(counts);
    for (size_t i = 0; i < pixels_of(image); ++i) {
      float& level = image.pixels[i * static_cast<size_t>(image.lanes) + c];
      level = table[static_cast<size_t>(level)];
    }
  }
}

using Counts = std::array<int64_t, kLevels>;
using Table = std::array<float, kLevels>;

Table stretched(const Counts& counts) {
  const auto present = [](int64_t count) { return count > 0; };
  const auto low = std::find_if(counts.begin(), counts.end(), present) - counts.begin();
  const auto high =
      kLevels - 1 - (std::find_if(counts.rbegin(), counts.rend(), present) - counts.rbegin());
  Table table;
  for (int level = 0; level < kLevels; ++level) {
    const float scale = 255.0f / static_cast<float>(std::max<int64_t>(1, high - low));
    const auto above = static_cast<float>(level - low);
    table[static_cast<size_t>(level)] =
        high > low ? to_level(above * scale) : static_cast<float>(level);
  }
  return table;
}

Table equalized(const Counts& counts) {
  int64_t all = 0;
  int64_t last = 0;
  for (const int64_t count : counts) {
    all += count;
    if (count > 0) last = count;
  }
  const int64_t step = (all - last) / 255;
  Table table;
  int64_t below = 0;
  for (size_t level = 0; level < kLevels; ++level) {
    table[level] = step == 0
                       ? static_cast<float>(level)
                       : static_cast<float>(std::min<int64_t>(255, (below + step / 2) / step));
    if (level == 0 && step != 0) table[level] = 0;
    below += counts[level];
  }
  return table;
}

// As torch.linspace(0, most, kMagnitudes) rounds it, since levels are cut off.
float strength_of(float most, int magnitude) {
  constexpr int kLast = kMagnitudes - 1;
  const float step = most / kLast;
  return magnitude < kMagnitudes / 2 ? step * static_cast<float>(magnitude)
                                     : most - step * static_cast<float>(kLast - magnitude);
}

}  // namespace

std::span<const std::string_view> augment_operations() { return kOperations; }

void apply_operation(size_t operation, int magnitude, bool negative, const LevelImage& image,
                     std::vector<float>& scratch) {
  const std::string_view name = kOperations.at(operation);
  const float share = static_cast<float>(magnitude) / (kMagnitudes - 1);
  const float sign = negative ? -1.0f : 1.0f;
  const float shear = sign * 0.3f * share;
  const double factor = 1 + static_cast<double>(sign * strength_of(0.9f, magnitude));
  const auto moved = [&](int extent) {
    return std::trunc(sign * 150.0f / 331.0f * static_cast<float>(extent) * share);
  };
  if (name == "ShearX") {
    move_pixels(image, scratch,
                [=](float x, float y) { return std::pair(x + shear * (y + 0.5f), y); });
  } else if (name == "ShearY") {
    move_pixels(image, scratch,
                [=](float x, float y) { return std::pair(x, y + shear * (x + 0.5f)); });
  } else if (name == "TranslateX") {
    move_pixels(image, scratch,
                [by = moved(image.width)](float x, float y) { return std::pair(x - by, y); });
  } else if (name == "TranslateY") {
    move_pixels(image, scratch,
                [by = moved(image.height)](float x, float y) { return std::pair(x, y - by); });
  } else if (name == "Rotate") {
    rotate(image, sign * 30 * share, scratch);
  } else if (name == "Brightness") {
    blend(image, factor, [](size_t, size_t) { return 0.0f; });
  } else if (name == "Color") {
    change_colour(image, factor);
  } else if (name == "Contrast") {
    change_contrast(image, factor);
  } else if (name == "Sharpness") {
    sharpen(image, factor, scratch);
  } else if (name == "Posterize") {
    const auto lost = static_cast<int>(
        std::nearbyint(static_cast<float>(magnitude) / ((kMagnitudes - 1) / 4.0f)));
    const auto step = static_cast<float>(1 << lost);
    for (float& level : image.pixels) level = std::floor(level / step) * step;
  } else if (name == "Solarize") {
    const float threshold = 255 - 255 * share;
    for (size_t i = 0; i < pixels_of(image); ++i) {
      for (size_t c = 0; c < static_cast<size_t>(colours_of(image)); ++c) {
        float& level = image.pixels[i * static_cast<size_t>(image.lanes) + c];
        if (level >= threshold) level = 255 - level;
      }
    }
  } else if (name == "AutoContrast") {
    map_levels(image, stretched);
  } else if (name == "Equalize") {
    map_levels(image, equalized);
  }
}

void apply_rand_augment(const RandAugment& settings, const Random& random, uint64_t first_draw,
                        const LevelImage& image, std::vector<float>& scratch) {
  for (float& level : image.pixels) level = std::nearbyint(std::clamp(level, 0.0f, 255.0f));
  for (uint64_t i = 0; i < static_cast<uint64_t>(settings.operations); ++i) {
    const auto operation = static_cast<size_t>(random.uniform(first_draw + 2 * i) *
                                               static_cast<float>(kOperations.size()));
    const bool negative = random.uniform(first_draw + 2 * i + 1) < 0.5f;
    apply_operation(operation, settings.magnitude, negative, image, scratch);
  }
}

}  // namespace millrace::data
