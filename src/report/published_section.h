// What `bench published` found, for reports.
#pragma once

#include <string>

#include "base/json.h"
#include "report/markup.h"

namespace millrace::report {

// `comparison` is an object with arrays and objects as compare_published makes them; what is
// missing or of another kind is left empty.
Table published_table(const Json& comparison);
Table published_errors(const Json& comparison);

// The findings in a few sentences.
std::string published_sentence(const Json& comparison);

std::string published_markdown(const Json& comparison);

// Rows with a published time, for the picture: [{"name", "error", "fitted"}].
Json published_points(const Json& comparison);

}  // namespace millrace::report
