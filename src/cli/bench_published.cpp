#include "cli/bench_published.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "bench/published_runs.h"
#include "cli/flag_names.h"
#include "cli/interruption.h"
#include "cli/job_flags.h"
#include "cli/plan_pipedream.h"
#include "cli/standard_files.h"
#include "planner/published/interval.h"
#include "planner/published/report.h"
#include "report/published_section.h"
#include "report/report.h"

namespace millrace::cli {
namespace {

constexpr const char* kPublishedHelp =
    "Every row of the published tables of OneFlow, PipeDream and InsightFace next to Millrace's "
    "predictions.\n"
    "Time by simulation on the described cluster and memory with the costs of the system that was "
    "measured; Millrace's own memory at full size, exact, from compiled programs; and a run of the "
    "same configuration on this machine with small images and batches. With --fit the cost "
    "constants are fitted anew, to fewer than half of the rows, from the guesses in "
    "costs_start.json.";

struct PublishedFlags {
  std::string constants;
  std::string markdown;
  std::string summary;
  std::string output;
  std::string save_constants;
  std::string save_errors;
  std::string rows;
  bench::ReducedSize size;
  bool fit = false;
  bool cross = false;
  bool no_runs = false;
  bool no_exact = false;
};

// The rows that --rows names: numbers from 1, ranges such as 3-9, or words of their descriptions.
std::vector<size_t> chosen_rows(const planner::PublishedTables& tables, const std::string& text) {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < tables.rows.size(); ++i) {
    const planner::PublishedRow& row = tables.rows[i];
    const std::string name = fmt::format("{} {} {}", row.system, row.model, row.label);
    bool wanted = text.empty();
    for (const std::string& part : split(text, ',')) {
      if (part.empty()) continue;
      const bool number = part.find_first_not_of("0123456789-") == std::string::npos;
      if (!number) {
        wanted |= name.find(part) != std::string::npos;
        continue;
      }
      const std::vector<std::string> ends = split(part, '-');
      const int first = parse_count(ends.front(), "--rows");
      const int last = parse_count(ends.back(), "--rows");
      wanted |= first <= static_cast<int>(i) + 1 && static_cast<int>(i) + 1 <= last;
    }
    if (wanted) chosen.push_back(i);
  }
  if (chosen.empty()) {
    fail_input("--rows '{}' names no row; give numbers from 1 to {}, ranges or words.", text,
               tables.rows.size());
  }
  return chosen;
}

// Tells on standard error what is under way and how long the rest may take.
class RowProgress {
 public:
  explicit RowProgress(size_t rows) : rows_(rows) {}

  void next(const planner::PublishedRow& row) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start_;
    std::string left;
    if (done_ > 0) {
      const double rest =
          spent.count() / static_cast<double>(done_) * static_cast<double>(rows_ - done_);
      left = fmt::format(", about {} left", format_duration(rest));
    }
    ++done_;
    print_error("row {} of {}: {} {} {}{}\n", done_, rows_, row.system, row.model, row.label, left);
  }

 private:
  const size_t rows_;
  size_t done_ = 0;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void write_rows(const Json& comparison, const std::filesystem::path& directory) {
  write_text(directory / "published.json", comparison.dump(2) + "\n");
}

// Keeps the chosen rows of the comparison, with what Millrace itself needs and does. Rows that took
// minutes are written one by one, so that an end halfway loses none.
void complete(const planner::PublishedTables& tables, const PublishedFlags& flags,
              Json& comparison) {
  Json part = comparison;
  part["rows"] = Json::array();
  const bool takes_long = !flags.no_exact || !flags.no_runs;
  const std::vector<size_t> chosen = chosen_rows(tables, flags.rows);
  RowProgress progress(chosen.size());
  for (const size_t index : chosen) {
    const planner::PublishedRow& row = tables.rows[index];
    Json described = comparison["rows"][index];
    described["row"] = index + 1;
    if (takes_long) progress.next(row);
    if (!flags.no_exact) bench::add_exact_memory(bench::full_job(tables, row), described);
    if (!flags.no_runs)
      bench::add_run(bench::reduced_job(tables, row, flags.size), flags.size, described);
    for (const char* note : {"exact_note", "run_note"}) {
      if (described.contains(note))
        described[note] = with_flags(described[note].get<std::string>());
    }
    part["rows"].push_back(std::move(described));
    if (takes_long && !flags.output.empty()) write_rows(part, flags.output);
  }
  comparison = std::move(part);
}

void print_changes(planner::CostConstants before, planner::CostConstants after) {
  const std::vector<planner::ConstantField> from = planner::fields_of(before),
                                            to = planner::fields_of(after);
  fmt::print("Fitted constants:\n");
  for (size_t i = 0; i < from.size(); ++i) {
    if (*from[i].value == *to[i].value) continue;
    fmt::print("  {:<38}{:>12.4g}  from {:.4g}\n", to[i].name, *to[i].value, *from[i].value);
  }
  fmt::print("\n");
}

void write_pages(const Json& comparison, const std::filesystem::path& directory) {
  report::RunFile file;
  file.kind = report::RunFile::Kind::published;
  file.path = directory / "published.json";
  file.json = comparison;
  report::RunSet set;
  set.runs.push_back({"published", {std::move(file)}});
  report::write_report(set, {.directory = directory});
  write_rows(comparison, directory);
}

planner::CostConstants starting_constants(const PublishedFlags& flags, bool fit) {
  planner::CostConstants constants =
      fit ? planner::unfitted_constants() : planner::builtin_constants();
  if (flags.constants.empty()) return constants;
  constants = planner::parse_constants(read_text(flags.constants), flags.constants);
  if (fit && constants.free.empty()) {
    fail_input("'{}' says under 'free' nothing to fit; see costs_start.json.", flags.constants);
  }
  return constants;
}

// How far off rows are whose system, cluster or model a fit has not seen, and how many of them the
// intervals hold.
Json coverage_of(planner::LeftOut kind, const std::vector<planner::HeldOutError>& errors) {
  std::vector<double> times, memory;
  for (const planner::HeldOutError& error : errors) {
    if (error.kind != kind) continue;
    times.push_back(std::abs(std::expm1(error.logarithm)));
    for (const double one : error.memory) memory.push_back(std::abs(std::expm1(one)));
  }
  const planner::FitQuality time = planner::quality_of(times), size = planner::quality_of(memory);
  return {{"left_out", planner::name_of(kind)},
          {"rows", time.rows},
          {"median", time.median},
          {"worst", time.worst},
          {"memory_median", size.median},
          {"memory_worst", size.worst},
          {"band", std::expm1(planner::band_of(kind, errors))},
          {"held", planner::held_by_others(kind, errors)}};
}

int run_cross(const PublishedFlags& flags) {
  const std::vector<planner::HeldOutError> errors =
      planner::leave_out(starting_constants(flags, true));
  if (!flags.save_errors.empty()) write_text(flags.save_errors, planner::to_csv(errors));
  fmt::print(
      "| left out of the fit | rows | median error | worst | memory: median | worst | band of "
      "{0:.0f} % | held by it |\n|---|---:|---:|---:|---:|---:|---:|---:|\n",
      planner::kIntervalShare * 100);
  Json json = Json::array();
  double held = 0, rows = 0;
  for (const planner::LeftOut kind : planner::kLeftOut) {
    json.push_back(coverage_of(kind, errors));
    const Json& one = json.back();
    const auto percent = [&](const char* name) { return one[name].get<double>() * 100; };
    fmt::print("| {} | {} | {:.1f} % | {:.1f} % | {:.1f} % | {:.1f} % | {:.1f} % | {:.0f} % |\n",
               planner::name_of(kind), one["rows"].get<size_t>(), percent("median"),
               percent("worst"), percent("memory_median"), percent("memory_worst"), percent("band"),
               percent("held") / one["rows"].get<double>());
    held += one["held"].get<double>();
    rows += one["rows"].get<double>();
  }
  fmt::print("\nThe intervals hold {:.0f} % of all these rows.\n", 100 * held / rows);
  const Json elsewhere = coverage_of(planner::LeftOut::architecture, errors);
  const Json pair = coverage_of(planner::LeftOut::pair, errors);
  for (const auto& [how, one] : {std::pair("constants of V100 alone", &elsewhere),
                                 std::pair("the rates of other systems on it too", &pair)}) {
    fmt::print(
        "Rates of another architecture (A100) by {}: {} rows, median error {:.1f} %, worst {:.1f} "
        "%, band {:.1f} %.\n",
        how, (*one)["rows"].get<size_t>(), 100 * (*one)["median"].get<double>(),
        100 * (*one)["worst"].get<double>(), 100 * (*one)["band"].get<double>());
  }
  if (!flags.summary.empty())
    write_text(
        flags.summary,
        Json{{"left_out", json}, {"architecture", elsewhere}, {"pair", pair}}.dump(2) + "\n");
  return kExitSuccess;
}

int run(const PublishedFlags& flags, Interruption& interruption) {
  for (const auto& [path, flag] :
       {std::pair(flags.markdown, "--markdown"), std::pair(flags.summary, "--summary"),
        std::pair(flags.save_constants, "--save-constants"),
        std::pair(flags.save_errors, "--save-errors")}) {
    if (!path.empty()) require_writable(path, flag);
  }
  if (!flags.output.empty()) {
    make_directory(flags.output, "--output");
    interruption.end_at_once(
        fmt::format("Interrupted; rows that were finished are in '{}/published.json', --rows takes "
                    "the others.",
                    flags.output));
  }
  if (flags.cross) return run_cross(flags);
  if (flags.size.image < 1 || flags.size.batch < 1 || flags.size.steps < 1) {
    fail_input("--image, --batch and --steps must be at least 1.");
  }
  planner::CostConstants constants = starting_constants(flags, flags.fit);
  if (flags.fit) {
    const planner::CostConstants fitted = planner::fit_constants(constants);
    print_changes(constants, fitted);
    constants = fitted;
  }
  const planner::PublishedTables tables = planner::published_tables(constants);
  Json comparison = planner::compare_published(tables, constants);
  complete(tables, flags, comparison);
  const std::string text = report::published_markdown(comparison);
  fmt::print("{}", text);
  if (!flags.markdown.empty()) write_text(flags.markdown, text);
  if (!flags.summary.empty()) write_text(flags.summary, comparison.dump(2) + "\n");
  if (!flags.output.empty()) write_pages(comparison, flags.output);
  if (!flags.save_constants.empty()) {
    write_text(flags.save_constants, planner::describe(constants).dump(2) + "\n");
  }
  return kExitSuccess;
}

}  // namespace

void add_published_suite(CLI::App& bench, Action& chosen, Interruption& interruption) {
  auto flags = std::make_shared<PublishedFlags>();
  CLI::App* suite = bench.add_subcommand("published", kPublishedHelp);
  suite->add_option("--markdown", flags->markdown, "Write the table to this file");
  suite->add_option("--summary", flags->summary, "Write it to this file as JSON");
  suite->add_option("-o,--output", flags->output,
                    "Directory for the report: report.md, index.html and published.json");
  suite->add_option("--rows", flags->rows,
                    "Only these: numbers from 1, ranges (3-9) or words (vgg16), comma-separated");
  suite->add_flag("--no-runs", flags->no_runs, "Leave the runs on this machine out");
  suite->add_flag("--no-exact", flags->no_exact, "Leave the compiled memory out");
  suite->add_option("--image", flags->size.image, "Pixels of the runs' images")
      ->capture_default_str();
  suite->add_option("--batch", flags->size.batch, "Samples per device of the runs")
      ->capture_default_str();
  suite->add_option("--steps", flags->size.steps, "Steps of the runs")->capture_default_str();
  suite->add_option("--constants", flags->constants,
                    "Cost constants to use instead of the built-in ones");
  suite->add_flag("--fit", flags->fit, "Fit the constants first, and show them");
  suite->add_flag("--cross", flags->cross,
                  "Instead of the table: fit without each model, cluster and system in turn, and "
                  "print how far off its rows are, times and memory, and how many of them the "
                  "intervals that `plan` tells would hold");
  suite->add_option("--save-errors", flags->save_errors,
                    "With --cross: write the errors on rows whose kind was left out to this file");
  suite->add_option("--save-constants", flags->save_constants, "Write the constants to this file");
  suite->callback([&chosen, flags, &interruption] {
    chosen = [flags, &interruption] { return run(*flags, interruption); };
  });
}

}  // namespace millrace::cli
