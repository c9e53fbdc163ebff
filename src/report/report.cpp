#include "report/report.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "report/timeline.h"
#include "report/timeline_svg.h"
#include "runtime/trace_file.h"

namespace millrace {
namespace {

bool is_trace(const Json& root) {
  return root.is_array() || (root.is_object() && root.contains("traceEvents"));
}

bool is_summary(const Json& root) {
  return root.is_object() && root.contains("devices") && root["devices"].is_array();
}

Json parse(const std::string& text, const std::string& source) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    fail_input("'{}' is not JSON: mistake at byte {}.", source, error.byte);
  }
}

// Nothing if the file is something else.
bool read_file(const std::filesystem::path& path, RunFile& file) {
  const std::string text = read_text(path);
  const Json root = parse(text, path.string());
  file.path = path;
  file.is_trace = is_trace(root);
  if (file.is_trace) file.trace = parse_trace(text, path.string());
  if (is_summary(root)) file.summary = root;
  return file.is_trace || is_summary(root);
}

std::vector<std::filesystem::path> json_files(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.is_regular_file() && entry.path().extension() == ".json") {
      paths.push_back(entry.path());
    }
  }
  if (error)
    fail_input("The directory '{}' cannot be read: {}.", directory.string(), error.message());
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string file_name(const std::string& stem, std::set<std::string>& used) {
  std::string name = stem + ".svg";
  for (int i = 2; !used.insert(name).second; ++i) name = fmt::format("{}-{}.svg", stem, i);
  return name;
}

}  // namespace

std::vector<RunFile> read_run_files(const std::filesystem::path& path) {
  std::vector<RunFile> files;
  RunFile file;
  if (!std::filesystem::is_directory(path)) {
    if (!read_file(path, file)) {
      fail_input(
          "'{}' is neither a summary, a plan nor a trace; give a file of --summary or --trace.",
          path.string());
    }
    files.push_back(std::move(file));
    return files;
  }
  for (const std::filesystem::path& entry : json_files(path)) {
    if (read_file(entry, file)) files.push_back(std::move(file));
    file = {};
  }
  if (files.empty()) {
    fail_input("The directory '{}' has no file of --summary or --trace.", path.string());
  }
  return files;
}

std::string write_report(const std::vector<RunFile>& files, const ReportOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(options.directory, error);
  if (error) {
    fail_input("The directory '{}' for the report cannot be made: {}.", options.directory.string(),
               error.message());
  }
  std::string text;
  std::set<std::string> used;
  for (const RunFile& file : files) {
    if (!text.empty()) text += "\n";
    if (!file.is_trace) {
      text += describe_summary(file);
      continue;
    }
    const Window window = steps_window(file.trace, options.first_step, options.steps);
    const std::string stem = file.path.stem().string();
    const std::string picture = file_name(stem, used);
    const std::string title =
        window.steps > 0 ? fmt::format("{}: {} steps", stem, window.steps) : stem;
    write_text(options.directory / picture, timeline_svg(file.trace, window, title));
    text += describe_trace(file) + fmt::format("\n![What each device did]({})\n", picture);
  }
  write_text(options.directory / "report.md", text);
  return text;
}

}  // namespace millrace
