#include "data/image/transform.h"

#include <algorithm>
#include <cmath>

#include "base/vectorize.h"
#include "data/image/codec.h"

namespace millrace::data {
namespace {

constexpr uint64_t kTries = 10;
constexpr uint64_t kFlipDraw = 44;
constexpr uint64_t kShiftDraw = 45;
constexpr uint64_t kJitterDraw = 48;
constexpr uint64_t kErasesDraw = 55;
constexpr uint64_t kErasedDraw = 60;
constexpr uint64_t kAugmentDraw = 100;

double between(double low, double high, float part) { return low + (high - low) * part; }

PixelRegion centred(double width, double height, int image_width, int image_height) {
  return {(image_width - width) / 2, (image_height - height) / 2, width, height};
}

PixelRegion random_resized(const TransformOptions& options, int height, int width,
                           const Random& random) {
  const double area = static_cast<double>(height) * width;
  for (uint64_t attempt = 0; attempt < kTries; ++attempt) {
    const uint64_t draw = attempt * 4;
    const double wanted =
        area * between(options.smallest_area, options.largest_area, random.uniform(draw));
    const double ratio =
        std::exp(between(std::log(options.smallest_ratio), std::log(options.largest_ratio),
                         random.uniform(draw + 1)));
    const double crop_width = std::round(std::sqrt(wanted * ratio));
    const double crop_height = std::round(std::sqrt(wanted / ratio));
    if (crop_width < 1 || crop_height < 1 || crop_width > width || crop_height > height) continue;
    const double left = std::floor((width - crop_width + 1) * random.uniform(draw + 2));
    const double top = std::floor((height - crop_height + 1) * random.uniform(draw + 3));
    return {std::min(left, width - crop_width), std::min(top, height - crop_height), crop_width,
            crop_height};
  }
  const double ratio = static_cast<double>(width) / height;
  if (ratio < options.smallest_ratio) {
    return centred(width, std::min<double>(height, std::round(width / options.smallest_ratio)),
                   width, height);
  }
  if (ratio > options.largest_ratio) {
    return centred(std::min<double>(width, std::round(height * options.largest_ratio)), height,
                   width, height);
  }
  return {0, 0, static_cast<double>(width), static_cast<double>(height)};
}

PixelRegion centre(const TransformOptions& options, int height, int width) {
  const double shorter = options.shorter_side;
  const double factor = shorter / std::min(height, width);
  const double resized_width = width <= height ? shorter : std::floor(width * factor);
  const double resized_height = height <= width ? shorter : std::floor(height * factor);
  const CropView& view = options.view;
  const double room_x = std::max(0.0, resized_width - options.width);
  const double room_y = std::max(0.0, resized_height - options.height);
  const double from_left = std::nearbyint(room_x * view.across);
  const double left = view.mirrored ? room_x - from_left : from_left;
  const double top = std::nearbyint(room_y * view.down);
  const double step_x = width / resized_width;
  const double step_y = height / resized_height;
  const double part_width = std::min<double>(width, options.width * step_x);
  const double part_height = std::min<double>(height, options.height * step_y);
  return {std::min(left * step_x, width - part_width), std::min(top * step_y, height - part_height),
          part_width, part_height};
}

MILLRACE_VECTORIZED
void store_planes(const float* __restrict from, float* __restrict red, float* __restrict green,
                  float* __restrict blue, int width, const float* scale, const float* offset) {
  for (int x = 0; x < width; ++x) {
    red[x] = from[4 * x] * scale[0] + offset[0];
    green[x] = from[4 * x + 1] * scale[1] + offset[1];
    blue[x] = from[4 * x + 2] * scale[2] + offset[2];
  }
}

}  // namespace

std::vector<CropView> crop_views(int count) {
  if (count == 1) return {{}};
  if (count != 5 && count != 10) {
    fail_input("‹crops› is {}; choose 1 (the centre), 5 (the corners too) or 10 (mirrored too).",
               count);
  }
  std::vector<CropView> views = {{0, 0}, {1, 0}, {0, 1}, {1, 1}, {}};
  for (size_t i = 0; count == 10 && i < 5; ++i) {
    views.push_back({views[i].across, views[i].down, true});
  }
  return views;
}

TransformOptions photograph_training(int size) {
  TransformOptions options;
  options.height = options.width = size;
  options.crop = CropKind::random_resized;
  options.flip = true;
  return options;
}

TransformOptions photograph_evaluation(int size) {
  TransformOptions options;
  options.height = options.width = size;
  options.shorter_side = size * 8 / 7;
  return options;
}

TransformOptions face_training(int size) {
  TransformOptions options = face_evaluation(size);
  options.flip = true;
  return options;
}

TransformOptions face_evaluation(int size) {
  TransformOptions options;
  options.height = options.width = size;
  options.crop = CropKind::whole;
  options.mean = {0.5f, 0.5f, 0.5f};
  options.deviation = {0.5f, 0.5f, 0.5f};
  return options;
}

TransformOptions small_training(int size, int channels) {
  TransformOptions options = small_evaluation(size, channels);
  options.crop = CropKind::pad_and_shift;
  options.padding = std::max(1, size / 14);
  options.flip = true;
  return options;
}

TransformOptions small_evaluation(int size, int channels) {
  TransformOptions options;
  options.height = options.width = size;
  options.channels = channels;
  options.crop = CropKind::whole;
  if (channels == 1) {
    options.mean = {0.286f, 0.286f, 0.286f};
    options.deviation = {0.353f, 0.353f, 0.353f};
  }
  return options;
}

ImageRecipe recipe_of(const TransformOptions& evaluation) {
  return {.image = evaluation.height,
          .channels = evaluation.channels,
          .crop = evaluation.crop,
          .shorter_side = evaluation.shorter_side,
          .mean = evaluation.mean,
          .deviation = evaluation.deviation};
}

TransformOptions transform_of(const ImageRecipe& recipe) {
  TransformOptions options;
  options.height = options.width = recipe.image;
  options.channels = recipe.channels;
  options.crop = recipe.crop;
  options.shorter_side = recipe.shorter_side;
  options.mean = recipe.mean;
  options.deviation = recipe.deviation;
  return options;
}

PixelRegion choose_region(const TransformOptions& options, int height, int width,
                          const Random& random) {
  switch (options.crop) {
    case CropKind::random_resized:
      return random_resized(options, height, width, random);
    case CropKind::centre:
      return centre(options, height, width);
    case CropKind::whole:
    case CropKind::pad_and_shift:
      break;
  }
  return {0, 0, static_cast<double>(width), static_cast<double>(height)};
}

Transformer::Transformer(const TransformOptions& options) : options_(options) {
  if (options.height < 1 || options.width < 1 || (options.channels != 1 && options.channels != 3)) {
    fail_input("Images of {} × {} × {} cannot be made; channels are 1 or 3.", options.height,
               options.width, options.channels);
  }
  for (size_t c = 0; c < 3; ++c) {
    scale_[c] = 1.0f / (255.0f * options.deviation[c]);
    offset_[c] = -options.mean[c] / options.deviation[c];
  }
}

void Transformer::apply(const Sample& sample, const Random& random, float* target) {
  ImageReader reader(sample);
  const PixelRegion region = choose_region(options_, reader.height(), reader.width(), random);
  const bool exact = options_.crop != CropKind::random_resized;
  const Surroundings surroundings = exact ? Surroundings::seen : Surroundings::cut;
  const DecodedPart part =
      reader.decode(region, options_.height, options_.width, options_.channels, exact, decoded_);
  const PixelRegion inside = {region.left * part.scale - part.left,
                              region.top * part.scale - part.top, region.width * part.scale,
                              region.height * part.scale};
  const bool mirrored =
      options_.view.mirrored || (options_.flip && random.uniform(kFlipDraw) < 0.5f);
  int shift_x = 0;
  int shift_y = 0;
  if (options_.crop == CropKind::pad_and_shift) {
    const auto choices = static_cast<float>(2 * options_.padding + 1);
    shift_x = static_cast<int>(random.uniform(kShiftDraw) * choices) - options_.padding;
    shift_y = static_cast<int>(random.uniform(kShiftDraw + 1) * choices) - options_.padding;
    fill_black(target);
  }
  const int lanes = resize_lanes(options_.channels);
  const auto store = [&](int y, const float* pixels) {
    const int shifted = y + shift_y;
    if (shifted < 0 || shifted >= options_.height) return;
    store_row(pixels, shifted, shift_x, target);
  };
  const bool erases = options_.erasing > 0 && random.uniform(kErasesDraw) < options_.erasing;
  if (!options_.jitter.enabled() && !options_.rand_augment.enabled()) {
    resize(part.view, inside, options_.height, options_.width, mirrored, surroundings, workspace_,
           store);
    if (erases) erase(choose_erased(options_, random), target);
    return;
  }
  const size_t row_values = static_cast<size_t>(options_.width) * lanes;
  whole_.resize(row_values * options_.height);
  resize(part.view, inside, options_.height, options_.width, mirrored, surroundings, workspace_,
         [&](int y, const float* pixels) {
           std::copy(pixels, pixels + row_values, &whole_[static_cast<size_t>(y) * row_values]);
         });
  if (options_.rand_augment.enabled()) {
    apply_rand_augment(options_.rand_augment, random, kAugmentDraw,
                       {whole_, options_.height, options_.width, lanes}, scratch_);
  }
  if (options_.jitter.enabled()) apply_jitter(options_.jitter, random, kJitterDraw, whole_, lanes);
  for (int y = 0; y < options_.height; ++y) {
    store(y, &whole_[static_cast<size_t>(y) * row_values]);
  }
  if (erases) erase(choose_erased(options_, random), target);
}

ErasedPart choose_erased(const TransformOptions& options, const Random& random) {
  const double area = static_cast<double>(options.height) * options.width;
  for (uint64_t attempt = 0; attempt < kTries; ++attempt) {
    const uint64_t draw = kErasedDraw + attempt * 4;
    const double wanted = area * between(0.02, 0.33, random.uniform(draw));
    const double ratio = std::exp(between(std::log(0.3), std::log(3.3), random.uniform(draw + 1)));
    const auto height = static_cast<int>(std::nearbyint(std::sqrt(wanted * ratio)));
    const auto width = static_cast<int>(std::nearbyint(std::sqrt(wanted / ratio)));
    if (height >= options.height || width >= options.width) continue;
    const auto place = [&](int room, uint64_t which) {
      return std::min(room, static_cast<int>(random.uniform(which) * static_cast<float>(room + 1)));
    };
    return {place(options.width - width, draw + 3), place(options.height - height, draw + 2), width,
            height};
  }
  return {};
}

void Transformer::erase(const ErasedPart& part, float* target) const {
  const bool planar = options_.layout == PixelLayout::nchw;
  const int64_t plane = int64_t{options_.height} * options_.width;
  for (int c = 0; c < options_.channels; ++c) {
    for (int y = part.top; y < part.top + part.height; ++y) {
      for (int x = part.left; x < part.left + part.width; ++x) {
        const int64_t pixel = int64_t{y} * options_.width + x;
        target[planar ? c * plane + pixel : pixel * options_.channels + c] = 0;
      }
    }
  }
}

void Transformer::store_row(const float* pixels, int y, int shift_x, float* target) const {
  const int width = options_.width;
  const int channels = options_.channels;
  const int lanes = resize_lanes(channels);
  const int64_t plane = int64_t{options_.height} * width;
  const bool planar = options_.layout == PixelLayout::nchw;
  float* row = target + int64_t{y} * width * (planar ? 1 : channels);
  if (planar && channels == 3 && shift_x == 0) {
    store_planes(pixels, row, row + plane, row + 2 * plane, width, scale_.data(), offset_.data());
    return;
  }
  const int64_t channel_step = planar ? plane : 1;
  const int64_t pixel_step = planar ? 1 : channels;
  const int first = std::max(0, -shift_x);
  const int last = std::min(width, width - shift_x);
  for (int x = first; x < last; ++x) {
    for (int c = 0; c < channels; ++c) {
      row[(x + shift_x) * pixel_step + c * channel_step] =
          pixels[x * lanes + c] * scale_[static_cast<size_t>(c)] + offset_[static_cast<size_t>(c)];
    }
  }
}

void Transformer::fill_black(float* target) const {
  const int64_t pixels = int64_t{options_.height} * options_.width;
  const bool planar = options_.layout == PixelLayout::nchw;
  for (int64_t i = 0; i < pixels * options_.channels; ++i) {
    const int64_t channel = planar ? i / pixels : i % options_.channels;
    target[i] = offset_[static_cast<size_t>(channel)];
  }
}

}  // namespace millrace::data
