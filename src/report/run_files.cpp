#include "report/run_files.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/text.h"
#include "report/evaluation_section.h"
#include "runtime/trace_file.h"

namespace millrace::report {
namespace {

using Kind = RunFile::Kind;

bool has_array(const Json& root, const char* key) {
  return root.is_object() && root.contains(key) && root[key].is_array();
}

Json parse(const std::string& text, const std::string& source) {
  if (is_nested_too_deep(text)) fail_input("'{}' has brackets nested too deep.", source);
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    fail_input("'{}' is not JSON: mistake at byte {}.", source, error.byte);
  } catch (const Json::out_of_range&) {
    fail_input("'{}' has a number that is too large.", source);
  }
}

// A killed run may have cut its last line; lines that are no objects are left out.
void read_metrics(const std::string& text, RunFile& file, std::vector<std::string>& notes) {
  size_t number = 0, first = 0, damaged = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    if (line.empty()) continue;
    Json json = parse_json(line);
    if (json.is_object()) {
      file.metrics.push_back(std::move(json));
    } else if (damaged++ == 0) {
      first = number;
    }
  }
  if (damaged == 0 || file.metrics.empty()) return;
  notes.push_back(
      damaged == 1 ? fmt::format("'{}': line {} is damaged and left out.",
                                 file.path.filename().string(), first)
                   : fmt::format("'{}': {} lines are damaged and left out, the first is line {}.",
                                 file.path.filename().string(), damaged, first));
}

bool looks_like_trace(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos) return false;
  return text[start] == '[' ||
         (text[start] == '{' && text.find("\"traceEvents\"") != std::string_view::npos);
}

// `plan --predict` and `--check` name the time of a step in their own way.
void add_usual_names(Json& root) {
  const auto seconds = root.find("predicted_step_seconds");
  if (seconds != root.end() && !root.contains("predicted_seconds_per_step")) {
    root["predicted_seconds_per_step"] = Json(*seconds);
  }
}

// False if the file is something else.
bool read_file(const std::filesystem::path& path, RunFile& file, std::vector<std::string>& notes) {
  std::error_code error;
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) {
    fail_input("'{}' is not a file; give a file of ‹summary›, ‹metrics› or ‹trace›.",
               path.string());
  }
  const std::string text = read_text(path);
  file.path = path;
  if (path.extension() == ".jsonl") {
    file.kind = Kind::metrics;
    read_metrics(text, file, notes);
    if (file.metrics.empty() && !text.empty()) {
      fail_input("'{}' is damaged: no line of it is a JSON object.", path.string());
    }
    return !file.metrics.empty();
  }
  if (looks_like_trace(text)) {
    file.kind = Kind::trace;
    runtime::TraceFile trace = runtime::parse_trace_file(text, path.string());
    file.trace = std::move(trace.log);
    file.simulated = trace.simulated;
    return true;
  }
  Json root = parse(text, path.string());
  const bool compares = has_array(root, "rows") && root.contains("errors");
  if (!compares && !has_array(root, "devices")) return false;
  add_usual_names(root);
  const bool planned = root.contains("predicted_seconds_per_step") && !root.contains("loss");
  file.kind = compares              ? Kind::published
              : is_evaluation(root) ? Kind::evaluation
              : planned             ? Kind::plan
                                    : Kind::summary;
  file.json = std::move(root);
  return true;
}

std::vector<std::filesystem::path> entries_of(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    paths.push_back(entry.path());
  }
  if (error) {
    fail_input("The directory '{}' cannot be read: {}.", directory.string(), error.message());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string name_of_directory(const std::filesystem::path& directory) {
  const std::filesystem::path path = std::filesystem::absolute(directory).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

void add_directory(const std::filesystem::path& directory, RunSet& set) {
  Run run;
  run.name = name_of_directory(directory);
  for (const std::filesystem::path& path : entries_of(directory)) {
    const std::string extension = path.extension().string();
    if (extension != ".json" && extension != ".jsonl" && extension != ".trace") continue;
    if (!std::filesystem::is_regular_file(path)) continue;
    try {
      RunFile file;
      if (read_file(path, file, set.notes)) run.files.push_back(std::move(file));
    } catch (const InputError& error) {
      set.notes.emplace_back(error.marked());
    }
  }
  if (!run.files.empty()) set.runs.push_back(std::move(run));
}

}  // namespace

const RunFile* Run::find(RunFile::Kind kind) const {
  for (const RunFile& file : files) {
    if (file.kind == kind) return &file;
  }
  return nullptr;
}

const RunFile* Run::find_trace(bool simulated) const {
  for (const RunFile& file : files) {
    if (file.kind == Kind::trace && file.simulated == simulated) return &file;
  }
  return nullptr;
}

RunSet read_runs(const std::filesystem::path& path) {
  RunSet set;
  if (!std::filesystem::is_directory(path)) {
    RunFile file;
    if (!read_file(path, file, set.notes)) {
      fail_input(
          "'{}' is neither a summary, a plan, metrics nor a trace; give a file of ‹summary›, "
          "‹metrics› or ‹trace›.",
          path.string());
    }
    Run run;
    run.name = path.stem().string();
    run.files.push_back(std::move(file));
    set.runs.push_back(std::move(run));
    return set;
  }
  add_directory(path, set);
  for (const std::filesystem::path& entry : entries_of(path)) {
    if (std::filesystem::is_directory(entry)) add_directory(entry, set);
  }
  if (!set.runs.empty()) return set;
  if (!set.notes.empty()) fail_input("{}", set.notes.front());
  fail_input("The directory '{}' has no file of ‹summary›, ‹metrics› or ‹trace›.", path.string());
}

RunSet read_runs(const std::vector<std::filesystem::path>& paths) {
  RunSet all;
  Run loose;
  for (const std::filesystem::path& path : paths) {
    RunSet set = read_runs(path);
    all.notes.insert(all.notes.end(), set.notes.begin(), set.notes.end());
    for (Run& run : set.runs) {
      if (std::filesystem::is_directory(path)) {
        all.runs.push_back(std::move(run));
        continue;
      }
      if (loose.name.empty()) loose.name = run.name;
      loose.files.push_back(std::move(run.files.front()));
    }
  }
  if (!loose.files.empty()) all.runs.insert(all.runs.begin(), std::move(loose));
  return all;
}

}  // namespace millrace::report
