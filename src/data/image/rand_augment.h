// RandAugment (Cubuk et al., 2019), as torchvision does it to images of bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/random.h"

namespace millrace::data {

// So many operations, drawn anew for each image, each as strong as `magnitude` of kMagnitudes - 1.
struct RandAugment {
  int operations = 0;  // 0: none
  int magnitude = 9;

  bool enabled() const { return operations > 0; }
};

inline constexpr int kMagnitudes = 31;

// An image of floats that are whole numbers from 0 to 255, pixels of `lanes` (4: red, green, blue,
// padding; 1: grey). Borrowed.
struct LevelImage {
  std::span<float> pixels;
  int height = 0;
  int width = 0;
  int lanes = 4;
};

// By torchvision's names: Identity, ShearX, … Equalize, in its order.
std::span<const std::string_view> augment_operations();

// One of them, by its place in the list. `scratch` is memory to work with.
void apply_operation(size_t operation, int magnitude, bool negative, const LevelImage& image,
                     std::vector<float>& scratch);

// Rounds the pixels, then applies drawn operations. Draws elements first_draw … of `random`, two
// for each operation.
void apply_rand_augment(const RandAugment& settings, const Random& random, uint64_t first_draw,
                        const LevelImage& image, std::vector<float>& scratch);

}  // namespace millrace::data
