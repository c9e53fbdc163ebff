// A picture of a trace.
#pragma once

#include <string>

#include "report/timeline.h"

namespace millrace::report {

// One row per device in the order of stages, nodes and devices: forward, backward and update as
// bars with the micro-batch's number, waits as a thin line, communication as a strip below; a time
// axis and a legend. Follows the reader's light or dark scheme. Bars narrower than a fortieth of a
// pixel are left out.
std::string timeline_svg(const runtime::TraceLog& log, const TimeWindow& window,
                         const std::string& title);

}  // namespace millrace::report
