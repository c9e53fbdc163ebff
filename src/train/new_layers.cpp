#include "train/new_layers.h"

#include "base/pattern.h"

namespace millrace::train {

NewLayers parse_new_layers(std::string_view text) {
  if (text == "auto") return {.automatic = true, .patterns = {}};
  return {.automatic = false, .patterns = parse_patterns(text, "‹new_layers›")};
}

}  // namespace millrace::train
