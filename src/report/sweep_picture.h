// How a job scales, as a picture.
#pragma once

#include <string>

#include "base/json.h"

namespace millrace::report {

// SVG of what `plan --sweep --json` prints: samples per second over the number that was swept, and
// over devices also what the first point that fits would come to without any loss. Points that do
// not fit are left out.
std::string sweep_picture(const Json& described);

}  // namespace millrace::report
