#include "report/report.h"

#include <fmt/format.h>

#include <set>

#include "base/error.h"
#include "base/file.h"
#include "report/evaluation_section.h"
#include "report/page.h"
#include "report/published_section.h"
#include "report/tables.h"
#include "report/timeline_svg.h"

namespace millrace::report {
namespace {

using Kind = RunFile::Kind;

std::string file_name(const std::string& stem, std::set<std::string>& used) {
  std::string name = stem + ".svg";
  for (int i = 2; !used.insert(name).second; ++i) name = fmt::format("{}-{}.svg", stem, i);
  return name;
}

std::string overview(const RunSet& set, const std::vector<RunFacts>& facts) {
  std::string text;
  for (const std::string& note : set.notes) text += fmt::format("> {}\n\n", markdown_cell(note));
  std::vector<RunFacts> trained;
  for (size_t i = 0; i < facts.size(); ++i) {
    if (set.runs[i].find(Kind::published) != nullptr) continue;
    trained.push_back(facts[i]);
    text += fmt::format("**{}**: {}\n\n", markdown_cell(facts[i].name),
                        markdown_cell(sentence_of(facts[i])));
  }
  return trained.empty() ? text : text + to_markdown(run_table(trained));
}

}  // namespace

std::string write_report(const RunSet& set, const ReportOptions& options) {
  make_directory(options.directory, "‹output›");
  std::vector<RunFacts> facts;
  for (const Run& run : set.runs) {
    facts.push_back(facts_of(run, options.first_step, options.steps));
  }
  std::string text = overview(set, facts);
  std::set<std::string> used;
  for (size_t i = 0; i < set.runs.size(); ++i) {
    const Run& run = set.runs[i];
    for (const RunFile& file : run.files) {
      if (file.kind == Kind::metrics) continue;
      if (!text.empty()) text += "\n";
      if (file.kind == Kind::evaluation) {
        text += describe_evaluation(file);
        continue;
      }
      if (file.kind == Kind::published) {
        text += published_markdown(file.json);
        continue;
      }
      if (file.kind != Kind::trace) {
        text += describe_summary(file);
        continue;
      }
      const TraceFacts& trace = facts[i].traces.at(&file);
      const TimeWindow& window = trace.shown;
      const std::string stem = file.path.stem().string();
      const std::string picture = file_name(stem, used);
      const std::string title =
          window.steps > 0 ? fmt::format("{}: {} steps", stem, window.steps) : stem;
      write_text(options.directory / picture, timeline_svg(file.trace, window, title));
      text += describe_trace(file, trace.times) +
              fmt::format("\n![What each device did]({})\n", picture);
    }
    const Table prediction = prediction_table(run, facts[i]);
    if (!prediction.rows.empty()) text += fmt::format("\n{}", to_markdown(prediction));
  }
  write_text(options.directory / "report.md", text);
  write_text(options.directory / "index.html", report_page(set, facts, options.directory));
  return text;
}

}  // namespace millrace::report
