// Reads what jobs wrote and tells it to people.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "runtime/trace.h"

namespace millrace {

// A file that --summary, plan --json or --trace wrote.
struct RunFile {
  std::filesystem::path path;
  bool is_trace = false;
  Json summary;    // of a summary or plan: an object with an array "devices"
  TraceLog trace;  // of a trace
};

// A file, or all files "*.json" of a directory that are one or the other. Takes any bytes: throws
// InputError naming the file and what is wrong with it, or a directory without any.
std::vector<RunFile> read_run_files(const std::filesystem::path& path);

struct ReportOptions {
  std::filesystem::path directory;  // made if missing
  int64_t first_step = -1;          // of the picture, from 0; -1: past the beginning
  int64_t steps = 2;                // of the picture
};

// Writes "<name of the trace>.svg" for each trace, and "report.md". Returns the latter.
std::string write_report(const std::vector<RunFile>& files, const ReportOptions& options);

// The sections of a report: a run's figures and the memory of its devices; where the time of
// each device went, both shares of bubbles, and waits by cause.
std::string describe_summary(const RunFile& file);
std::string describe_trace(const RunFile& file);

}  // namespace millrace
