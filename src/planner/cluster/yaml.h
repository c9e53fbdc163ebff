// YAML as JSON, for descriptions that people write by hand.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace millrace::planner {

// The first document of the text: mappings, lists, and words that are numbers, true, false or null
// where they look like it and are not quoted. Takes any bytes; throws InputError that names `file`
// and the line of a mistake, or says that aliases make it too large.
Json parse_yaml(std::string_view text, const std::string& file);

}  // namespace millrace::planner
