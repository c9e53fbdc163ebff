// A report as one page of HTML that needs no other file and no network.
#pragma once

#include <string>

#include "report/report.h"

namespace millrace {

// Tables are plain HTML; curves, bars and timelines are drawn by the page's script from data that
// the page carries. The names and texts of runs are never markup.
std::string report_page(const RunSet& set, const ReportOptions& options);

}  // namespace millrace
