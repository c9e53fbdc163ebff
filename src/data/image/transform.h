// From a sample to the floats of a batch: crop, resize, flip, colour, normalisation.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "data/image/colour.h"
#include "data/image/image.h"
#include "data/image/rand_augment.h"
#include "data/image/recipe.h"
#include "data/image/resize.h"
#include "data/sample.h"

namespace millrace::data {

enum class PixelLayout { nchw, nhwc };

// Where an evaluation cuts its crop out of the resized image, from 0 (left, top) to 1, or out of
// the mirrored one.
struct CropView {
  double across = 0.5;
  double down = 0.5;
  bool mirrored = false;
};

// The crops whose logits are averaged: 1 (the centre), 5 (the corners too) or 10 (mirrored too), in
// the order of torchvision's TenCrop. Throws InputError naming ‹crops› for another number.
std::vector<CropView> crop_views(int count);

// The recipe for one image. Values are divided by 255, then (x − mean) / deviation.
struct TransformOptions {
  int height = 224;
  int width = 224;
  int channels = 3;
  PixelLayout layout = PixelLayout::nchw;
  CropKind crop = CropKind::centre;
  double smallest_area = 0.08;  // kRandomResized: part of the image's area
  double largest_area = 1.0;
  double smallest_ratio = 3.0 / 4.0;
  double largest_ratio = 4.0 / 3.0;
  int shorter_side = 256;
  CropView view = {};  // of CropKind::centre
  int padding = 0;
  bool flip = false;
  ColourJitter jitter;
  RandAugment rand_augment;
  double erasing = 0;  // the chance that a rectangle becomes 0 behind the normalisation
  std::array<float, 3> mean = {0.485f, 0.456f, 0.406f};
  std::array<float, 3> deviation = {0.229f, 0.224f, 0.225f};

  int64_t values() const { return int64_t{height} * width * channels; }
};

TransformOptions photograph_training(int size);
TransformOptions photograph_evaluation(int size);
TransformOptions face_training(int size = 112);
TransformOptions face_evaluation(int size = 112);
// Small images: grey ones with the mean and deviation of Fashion-MNIST, coloured ones with those of
// photographs.
TransformOptions small_training(int size = 28, int channels = 1);
TransformOptions small_evaluation(int size = 28, int channels = 1);

// An evaluation as it travels with weights, and back.
ImageRecipe recipe_of(const TransformOptions& evaluation);
TransformOptions transform_of(const ImageRecipe& recipe);

// The region that a recipe takes from an image of this size; uses draws 0 … 43.
PixelRegion choose_region(const TransformOptions& options, int height, int width,
                          const Random& random);

// A part of the image in whole pixels.
struct ErasedPart {
  int left = 0;
  int top = 0;
  int width = 0;
  int height = 0;
};

// What random erasing takes, as torchvision chooses it: 2 to 33 % of the area, ratio 0.3 to 3.3;
// nothing where ten tries do not fit. Uses draws 60 … 99.
ErasedPart choose_erased(const TransformOptions& options, const Random& random);

// Applies a recipe. Holds scratch memory: one per thread. The result depends on the sample, the
// options and `random` alone.
class Transformer {
 public:
  explicit Transformer(const TransformOptions& options);

  // Writes options.values() floats to `target`. Throws BadData if the image is damaged.
  void apply(const Sample& sample, const Random& random, float* target);

 private:
  void store_row(const float* pixels, int y, int shift_x, float* target) const;
  void fill_black(float* target) const;
  void erase(const ErasedPart& part, float* target) const;

  TransformOptions options_;
  std::array<float, 4> scale_ = {};
  std::array<float, 4> offset_ = {};
  ResizeWorkspace workspace_;
  std::vector<uint8_t> decoded_;
  std::vector<float> whole_;
  std::vector<float> scratch_;
};

}  // namespace millrace::data
