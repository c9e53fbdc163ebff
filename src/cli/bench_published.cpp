#include "cli/bench_published.h"

#include <fmt/format.h>

#include <memory>

#include "base/file.h"
#include "planner/published/report.h"

namespace millrace {
namespace {

constexpr const char* kHelp =
    "Every row of the published tables of OneFlow, PipeDream and InsightFace next to the planner's "
    "prediction.\n"
    "Time by simulation on the described cluster and memory at full size, with the costs of the "
    "system that was measured, and with Millrace's own. With --fit the cost constants are fitted "
    "anew, to fewer than half of the rows, from the guesses in costs_start.json.";

struct PublishedFlags {
  std::string constants;
  std::string markdown;
  std::string json;
  std::string save_constants;
  bool fit = false;
};

void print_changes(CostConstants before, CostConstants after) {
  const std::vector<ConstantField> from = fields_of(before), to = fields_of(after);
  fmt::print("Fitted constants:\n");
  for (size_t i = 0; i < from.size(); ++i) {
    if (*from[i].value == *to[i].value) continue;
    fmt::print("  {:<38}{:>12.4g}  from {:.4g}\n", to[i].name, *to[i].value, *from[i].value);
  }
  fmt::print("\n");
}

int run(const PublishedFlags& flags) {
  for (const auto& [path, flag] :
       {std::pair(flags.markdown, "--markdown"), std::pair(flags.json, "--json"),
        std::pair(flags.save_constants, "--save-constants")}) {
    if (!path.empty()) require_writable(path, flag);
  }
  CostConstants constants = flags.fit ? unfitted_constants() : builtin_constants();
  if (!flags.constants.empty()) {
    constants = parse_constants(read_text(flags.constants), flags.constants);
  }
  if (flags.fit) {
    const CostConstants fitted = fit_constants(constants);
    print_changes(constants, fitted);
    constants = fitted;
  }
  const Json comparison = compare_published(published_tables(constants), constants);
  const std::string text = to_markdown(comparison);
  fmt::print("{}", text);
  if (!flags.markdown.empty()) write_text(flags.markdown, text);
  if (!flags.json.empty()) write_text(flags.json, comparison.dump(2) + "\n");
  if (!flags.save_constants.empty()) {
    write_text(flags.save_constants, describe(constants).dump(2) + "\n");
  }
  return kExitSuccess;
}

}  // namespace

void add_published_suite(CLI::App& bench, Action& chosen) {
  auto flags = std::make_shared<PublishedFlags>();
  CLI::App* suite = bench.add_subcommand("published", kHelp);
  suite->add_option("--markdown", flags->markdown, "Write the table to this file");
  suite->add_option("--json", flags->json, "Write it to this file as JSON");
  suite->add_option("--constants", flags->constants,
                    "Cost constants to use instead of the built-in ones");
  suite->add_flag("--fit", flags->fit, "Fit the constants first, and show them");
  suite->add_option("--save-constants", flags->save_constants, "Write the constants to this file");
  suite->callback([&chosen, flags] { chosen = [flags] { return run(*flags); }; });
}

}  // namespace millrace
