#include "api/keywords.h"

#include "base/setting_names.h"

namespace millrace::api {
namespace {

struct Keyword {
  std::string_view setting;
  std::string_view name;
};

// Those that differ.
constexpr Keyword kKeywords[] = {{"eval_data", "valid"},
                                 {"load_weights", "weights"},
                                 {"lr_milestones", "milestones"},
                                 {"lr_schedule", "schedule"},
                                 {"schedule", "pipeline schedule"},
                                 {"threads_per_device", "threads"},
                                 {"valid_share", "data's valid"}};

}  // namespace

std::string with_keywords(std::string_view marked) {
  return write_settings(marked, [](std::string_view setting) {
    for (const Keyword& keyword : kKeywords) {
      if (keyword.setting == setting) return std::string(keyword.name);
    }
    return std::string(setting);
  });
}

}  // namespace millrace::api
