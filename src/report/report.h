// Tells people what jobs wrote: as Markdown with pictures, and as one page of HTML.
#pragma once

#include <filesystem>
#include <string>

#include "report/run_files.h"
#include "report/timeline.h"

namespace millrace::report {

struct ReportOptions {
  std::filesystem::path directory;  // made if missing
  int64_t first_step = -1;          // of the picture, from 0; -1: past the beginning
  int64_t steps = 2;                // of the picture
};

// Writes "<name of the trace>.svg" for each trace, "report.md" and "index.html", which needs no
// other file. Returns the Markdown.
std::string write_report(const RunSet& set, const ReportOptions& options);

// The sections of a report: a run's figures and the memory of its devices; where the time of
// each device went, both shares of bubbles, and waits by cause.
std::string describe_summary(const RunFile& file);
std::string describe_evaluation(const RunFile& file);
std::string describe_trace(const RunFile& file, const TimeReport& report);
std::string sentence_of(const TimeReport& report);

}  // namespace millrace::report
