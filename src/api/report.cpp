#include "api/report.h"

#include "api/keywords.h"
#include "api/temporary.h"
#include "base/error.h"
#include "base/file.h"
#include "report/report.h"
#include "report/timeline_svg.h"

namespace millrace::api {

Report::Report(const std::vector<std::filesystem::path>& paths) {
  if (paths.empty()) fail_input("Name a directory of a run, or files that it wrote.");
  const auto directory = temporary_directory();
  report::RunSet set = report::read_runs(paths);
  for (std::string& note : set.notes) note = with_keywords(note);
  text_ = report::write_report(set, {.directory = *directory});
  page_ = read_text(*directory / "index.html");
}

std::string timeline_of(const std::filesystem::path& trace, int64_t steps) {
  if (steps < 1) fail_input("A timeline has 1 step or more, not {}.", steps);
  const report::RunSet set = report::read_runs(trace);
  const report::RunFile* file = set.runs.front().find(report::RunFile::Kind::trace);
  if (file == nullptr) fail_input("'{}' is no trace.", trace.string());
  return report::timeline_svg(file->trace, report::trace_facts(file->trace, -1, steps).shown,
                              trace.stem().string());
}

}  // namespace millrace::api
