// Settings as this layer and Python call them.
#pragma once

#include <string>
#include <string_view>

namespace millrace::api {

// A text of a layer below with its marked settings (base/setting_names.h) as the keywords of
// Python, which are the fields of JobOptions and its like but for `lr`, their learning_rate:
// ‹threads_per_device› is threads. Settings that these do not have keep their names.
std::string with_keywords(std::string_view marked);

}  // namespace millrace::api
