// Reads what jobs wrote.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "runtime/trace.h"

namespace millrace::report {

// A file that --summary, plan --json, --trace, --metrics or bench published wrote. A plan may be a
// prediction from programs measured here, and may have what was then measured. An evaluation is
// what eval --confusion --summary wrote.
struct RunFile {
  enum class Kind : uint8_t { summary, plan, trace, metrics, published, evaluation };
  std::filesystem::path path;
  Kind kind = Kind::summary;
  Json json;  // of a summary or plan: an object with an array "devices"; of published: "rows"
  runtime::TraceLog trace;    // of a trace
  bool simulated = false;     // of a trace: what would happen
  std::vector<Json> metrics;  // objects, one a line
};

// The files of one run, by name.
struct Run {
  std::string name;
  std::vector<RunFile> files;

  // The first of its kind; none: null.
  const RunFile* find(RunFile::Kind kind) const;
  const RunFile* find_trace(bool simulated) const;
};

// Runs, and a sentence for each file that could not be read, or not to its end.
struct RunSet {
  std::vector<Run> runs;
  std::vector<std::string> notes;
};

// A file, a directory of a run's files ("*.json", "*.jsonl" and "*.trace"), or a directory of such
// directories, a run each. Takes any bytes. A damaged file of a directory and damaged lines of
// metrics become notes; throws InputError if a file that was named cannot be read, or nothing of a
// directory can.
RunSet read_runs(const std::filesystem::path& path);

// Files that are named one by one are one run; each directory is a run, or several.
RunSet read_runs(const std::vector<std::filesystem::path>& paths);

}  // namespace millrace::report
