// Layers that start anew although weights are loaded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace::train {

// Layers that keep their first random values instead of a file's: those that fit a pattern, or
// automatically those that have another shape in the file or are not in it.
struct NewLayers {
  bool automatic = false;
  std::vector<std::string> patterns;

  bool any() const { return automatic || !patterns.empty(); }
};

// "auto", or patterns with commas between. Throws InputError naming --new-layers.
NewLayers parse_new_layers(std::string_view text);

}  // namespace millrace::train
