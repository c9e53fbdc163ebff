// Resampling with a triangle filter that widens when shrinking, so that nothing aliases.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data/image/image.h"

namespace millrace::data {

// Scratch memory of `resize`, reused from call to call. One per thread.
struct ResizeWorkspace {
  std::vector<float> column_weights;
  std::vector<int> column_first;
  std::vector<int> column_count;
  std::vector<float> row_weights;
  std::vector<int> row_first;
  std::vector<int> row_count;
  std::vector<float> line;
  std::vector<float> output;
};

// Floats per pixel in the rows that `resize` gives: 4 for colour (the fourth is padding), else 1.
inline int resize_lanes(int channels) { return channels == 3 ? 4 : 1; }

// Whether pixels beside the region count where the filter reaches beyond it: an image that is
// resized and then cropped has them, one that is cropped first has not.
enum class Surroundings : uint8_t { cut, seen };

// Scales `region` of the view (in the view's pixels, which it must not leave) to height × width,
// left and right exchanged if `mirrored`, and calls `row(y, pixels)` for each row in order; values
// are on the scale of the input, 0 to 255. The pixels are valid during the call alone. One or
// three channels.
void resize(const ImageView& view, const PixelRegion& region, int height, int width, bool mirrored,
            Surroundings surroundings, ResizeWorkspace& workspace,
            const std::function<void(int, float*)>& row);

}  // namespace millrace::data
