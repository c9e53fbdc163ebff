#include "report/published_section.h"

#include <fmt/format.h>

#include "report/run_facts.h"

namespace millrace::report {
namespace {

std::string whole(const std::optional<double>& value) {
  return value ? fmt::format("{:.0f}", *value) : "";
}

std::string percent(const std::optional<double>& value, const char* format = "{:.1f} %") {
  return value ? fmt::format(fmt::runtime(format), *value * 100) : "";
}

std::string sizes(const Json& list) {
  std::string text;
  if (!list.is_array()) return text;
  for (const Json& value : list) {
    if (!value.is_number()) continue;
    if (!text.empty()) text += " / ";
    text += fmt::format("{:.0f}", value.get<double>());
  }
  return text;
}

std::string verdict(const Json& row) {
  const Json predicted = json_member(row, "predicted_fits"),
             known = json_member(row, "published_fits");
  if (!predicted.is_boolean()) return "";
  std::string text = predicted.get<bool>() ? "yes" : "no";
  if (known.is_boolean() && known != predicted) {
    text += known.get<bool>() ? " (it does)" : " (it does not)";
  }
  return text;
}

bool is_fitted(const Json& row) {
  const Json fitted = json_member(row, "fitted");
  return fitted.is_boolean() && fitted.get<bool>();
}

std::string own_memory(const Json& row) {
  const std::string exact = sizes(json_member(row, "exact_memory_mib"));
  const std::string note = json_text(row, "exact_note");
  if (!exact.empty()) return note.empty() ? exact : fmt::format("{} ({})", exact, note);
  return note;
}

std::string own_run(const Json& row) {
  const Json run = json_member(row, "run");
  const auto rate = json_number(run, "samples_per_second");
  if (!rate) return json_text(row, "run_note");
  return fmt::format("{:.4g} at {} px, {} a device, loss {}", *rate, json_text(run, "image"),
                     json_text(run, "batch"), json_text(run, "last_loss"));
}

bool any(const Json& comparison, const char* key) {
  for (const Json& row : json_member(comparison, "rows")) {
    if (!json_member(row, key).is_null()) return true;
  }
  return false;
}

}  // namespace

Table published_table(const Json& comparison) {
  Table table;
  table.caption = "Published measurements, predictions and runs";
  table.head = {"system",        "model",
                "configuration", "published samples/s",
                "predicted",     "error",
                "published MiB", "predicted MiB",
                "fits",          "Millrace predicted"};
  const bool exact = any(comparison, "exact_memory_mib") || any(comparison, "exact_note");
  const bool ran = any(comparison, "run") || any(comparison, "run_note");
  if (exact) table.head.emplace_back("Millrace MiB, exact");
  if (ran) table.head.emplace_back("run here, samples/s");
  for (const Json& row : json_member(comparison, "rows")) {
    std::vector<std::string> cells = {
        json_text(row, "system"),
        json_text(row, "model"),
        json_text(row, "configuration") + (is_fitted(row) ? " *" : ""),
        whole(json_number(row, "published_samples_per_second")),
        whole(json_number(row, "predicted_samples_per_second")),
        percent(json_number(row, "error"), "{:+.1f} %"),
        sizes(json_member(row, "published_memory_mib")),
        sizes(json_member(row, "predicted_memory_mib")),
        verdict(row),
        whole(json_number(row, "millrace_samples_per_second"))};
    if (exact) cells.push_back(own_memory(row));
    if (ran) cells.push_back(own_run(row));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

Table published_errors(const Json& comparison) {
  Table table;
  table.caption = "Errors of the predictions";
  table.head = {"rows", "of", "count", "median error", "worst error"};
  for (const auto& [key, what] : {std::pair("errors", "time"), std::pair("memory_errors", "MiB")}) {
    const Json errors = json_member(comparison, key);
    if (!errors.is_object()) continue;
    for (const auto& [name, quality] : errors.items()) {
      table.rows.push_back({name == "unseen" ? "held out" : name, what, json_text(quality, "rows"),
                            percent(json_number(quality, "median")),
                            percent(json_number(quality, "worst"))});
    }
  }
  return table;
}

std::string published_sentence(const Json& comparison) {
  std::string text =
      "Samples per second of the whole job; MiB per device, by stage. A star marks rows that the "
      "cost constants were fitted to; the others were held out. Predicted MiB are those of the "
      "system that was measured, Millrace's exact ones those of its compiled programs at full "
      "size.";
  const Json order = json_member(comparison, "order"), fits = json_member(comparison, "fits");
  const auto pairs = json_number(order, "pairs"), reversed = json_number(order, "reversed");
  const auto known = json_number(fits, "known"), right = json_number(fits, "right");
  if (pairs && reversed) {
    text += fmt::format(
        " Within a family, {:.0f} of {:.0f} pairs that differ by more than 3 % come out in the "
        "published order.",
        *pairs - *reversed, *pairs);
  }
  if (known && right) {
    text += fmt::format(" Whether a job fits is right for {:.0f} of {:.0f} rows.", *right, *known);
  }
  return text;
}

std::string published_markdown(const Json& comparison) {
  return fmt::format("# Published measurements and predictions\n\n{}\n\n{}\n{}",
                     published_sentence(comparison), to_markdown(published_table(comparison)),
                     to_markdown(published_errors(comparison)));
}

Json published_points(const Json& comparison) {
  Json points = Json::array();
  for (const Json& row : json_member(comparison, "rows")) {
    const auto error = json_number(row, "error");
    if (!error) continue;
    points.push_back(
        {{"name", fmt::format("{} {} {}", json_text(row, "system"), json_text(row, "model"),
                              json_text(row, "configuration"))},
         {"error", *error},
         {"fitted", is_fitted(row)}});
  }
  return points;
}

}  // namespace millrace::report
