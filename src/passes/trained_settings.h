// What of a network is trained.
#pragma once

#include <string>
#include <vector>

namespace millrace {

// Patterns are those of base/pattern.h. Plain data.
struct TrainedSettings {
  std::vector<std::string> freeze = {};
  std::vector<std::string> train_only = {};  // empty: everything
};

}  // namespace millrace
