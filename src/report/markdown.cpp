#include <fmt/format.h>

#include "report/evaluation_section.h"
#include "report/report.h"
#include "report/tables.h"

namespace millrace::report {
namespace {

std::string heading(const RunFile& file) {
  const std::filesystem::path run = file.path.parent_path().filename();
  return fmt::format("# {}\n\n", markdown_cell((run / file.path.filename()).string()));
}

std::string value_text(const Json& value) {
  if (value.is_string()) return markdown_cell(value.get<std::string>());
  if (value.is_number_float()) return fmt::format("{:.4g}", value.get<double>());
  return markdown_cell(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

std::string describe_summary(const RunFile& file) {
  std::string text = heading(file);
  for (const char* key :
       {"model", "global_batch", "steps", "precision", "schedule", "samples_per_second",
        "predicted_samples_per_second", "predicted_seconds_per_step", "fits"}) {
    const Json value = json_member(file.json, key);
    if (!value.is_null()) text += fmt::format("- {}: {}\n", key, value_text(value));
  }
  const Json median = json_member(json_member(file.json, "seconds_per_step"), "median");
  if (median.is_number()) text += fmt::format("- seconds per step: {}\n", value_text(median));
  const Json losses = json_member(file.json, "loss");
  if (losses.is_array() && !losses.empty()) {
    text += fmt::format("- loss: {} at first, {} at last\n", value_text(losses.front()),
                        value_text(losses.back()));
  }
  return fmt::format("{}\n{}", text, to_markdown(memory_table(file.json)));
}

std::string describe_evaluation(const RunFile& file) {
  return fmt::format("{}{}\n{}", heading(file), to_markdown(class_table(file.json)),
                     to_markdown(confusion_pairs(file.json)));
}

std::string describe_trace(const RunFile& file, const TimeReport& report) {
  std::string text = fmt::format("{}{}\n\n", heading(file), sentence_of(report));
  text += fmt::format(
      "- bubble, share of all time (as (p-1)/(m+p-1)): {:.1f} %\n"
      "- bubble, relative to the work (as (p-1)/m): {:.1f} %\n",
      100 * report.bubble_of_total(), 100 * report.bubble_of_ideal());
  if (file.trace.dropped > 0) {
    text += fmt::format("- {} later events found no room in the trace\n", file.trace.dropped);
  }
  text += fmt::format("\n{}\n", to_markdown(time_table(report)));
  const Table waits = wait_table(report);
  return text + (waits.rows.empty() ? "No waits were recorded.\n" : to_markdown(waits));
}

std::string sentence_of(const TimeReport& report) {
  const auto span = static_cast<double>(report.window.end - report.window.begin);
  std::string text = fmt::format("{:.4f} s on {} device{}", span / 1e9, report.devices.size(),
                                 report.devices.size() == 1 ? "" : "s");
  if (report.window.steps > 0) {
    text += fmt::format(", {} step{}", report.window.steps, report.window.steps == 1 ? "" : "s");
  }
  return text + ".";
}

}  // namespace millrace::report
