#include "cli/plan_pipedream.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/job_flags.h"
#include "planner/profile_graph.h"

namespace millrace::cli {
namespace {

constexpr const char* kPipedreamGroup = "From a profile";

double parse_bandwidth(std::string_view text) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size()) {
    fail_input("--bandwidth has '{}', which is not a number of bytes per second.", text);
  }
  return value;
}

// A stage of the innermost level, with its place in and its copies at each level.
struct FlatStage {
  const planner::PipelineStage* stage;
  std::vector<int> positions, replicas;  // innermost first
};

void flatten(const std::vector<planner::PipelineStage>& stages, std::vector<int> positions,
             std::vector<int> replicas, std::vector<FlatStage>& result) {
  positions.insert(positions.begin(), 0);
  replicas.insert(replicas.begin(), 0);
  for (const planner::PipelineStage& stage : stages) {
    replicas.front() = stage.replicas;
    if (stage.parts.empty()) {
      result.push_back({&stage, positions, replicas});
    } else {
      flatten(stage.parts, positions, replicas, result);
    }
    ++positions.front();
  }
}

Json describe_stage(const planner::ProfileGraph& graph, const FlatStage& flat, size_t index) {
  const std::vector<planner::ProfileNode>& nodes = graph.profile().nodes;
  int64_t copies = 1;
  for (const int replicas : flat.replicas) copies *= replicas;
  planner::NodeSet members = graph.empty_set();
  Json ids = Json::array();
  for (const int node : flat.stage->nodes) {
    members.insert(node);
    ids.push_back(nodes[node].id);
  }
  const planner::Totals totals = graph.totals(members);
  return {{"stage", index},
          {"replicas", copies},
          {"replicas_per_level", flat.replicas},
          {"position_per_level", flat.positions},
          {"first", nodes[flat.stage->nodes.front()].id},
          {"last", nodes[flat.stage->nodes.back()].id},
          {"forward_backward_seconds", totals.seconds},
          {"activation_bytes", totals.activation_bytes},
          {"parameter_bytes", totals.parameter_bytes},
          {"nodes", std::move(ids)}};
}

Json describe(const planner::Profile& profile, const planner::PipedreamOptions& options,
              const planner::PipedreamPlan& plan) {
  const planner::ProfileGraph graph(profile);
  Json result = {{"strategy", "pipedream"}, {"fits", plan.pipeline_seconds.has_value()}};
  result["pipeline_seconds"] = plan.pipeline_seconds ? Json(*plan.pipeline_seconds) : Json();
  result["data_parallel_seconds"] = plan.data_parallel_seconds;
  if (!plan.pipeline_seconds) {
    result["reason"] =
        "No division into stages satisfies the options; allow idle workers with --fewer, raise "
        "--memory, or leave out --straight.";
  }
  result["workers"] = Json::array();
  for (const planner::Level& level : options.levels) result["workers"].push_back(level.workers);
  result["states"] = plan.states;
  std::vector<FlatStage> stages;
  flatten(plan.stages, {}, {}, stages);
  result["stages"] = Json::array();
  for (size_t index = 0; index < stages.size(); ++index) {
    result["stages"].push_back(describe_stage(graph, stages[index], index));
  }
  result["ignored_nodes"] = Json::array();
  for (const int node : plan.unreached) result["ignored_nodes"].push_back(profile.nodes[node].id);
  return result;
}

std::string brief(const Json& text, size_t width) {
  const auto& value = text.get_ref<const std::string&>();
  return value.size() <= width ? value : value.substr(0, width - 3) + "...";
}

void print_stages(const Json& plan) {
  fmt::print("{:>5}  {:>8}  {:>9}  {:>12}  {:>12}  {:>12}  {}\n", "stage", "replicas", "per level",
             "compute (s)", "activations", "parameters", "operators");
  for (const Json& stage : plan["stages"]) {
    fmt::print(
        "{:>5}  {:>8}  {:>9}  {:>12.6f}  {:>12}  {:>12}  {} to {} ({})\n",
        stage["stage"].get<size_t>(), stage["replicas"].get<int64_t>(),
        fmt::format("{}", fmt::join(stage["replicas_per_level"].get<std::vector<int>>(), ",")),
        stage["forward_backward_seconds"].get<double>(),
        format_bytes(static_cast<uint64_t>(stage["activation_bytes"].get<double>())),
        format_bytes(static_cast<uint64_t>(stage["parameter_bytes"].get<double>())),
        brief(stage["first"], 20), brief(stage["last"], 20), stage["nodes"].size());
  }
}

void print_pipedream_plan(const Json& plan) {
  const double data_parallel = plan["data_parallel_seconds"].get<double>();
  if (plan["fits"].get<bool>()) {
    print_stages(plan);
    const double pipeline = plan["pipeline_seconds"].get<double>();
    fmt::print("\nPipeline       {:>12.6f} s per mini-batch\n", pipeline);
    fmt::print("Data parallel  {:>12.6f} s", data_parallel);
    if (pipeline > 0) fmt::print(", {:.2f} times as long", data_parallel / pipeline);
    fmt::print("\n");
  } else {
    fmt::print("{}\n\nData parallel  {:>12.6f} s\n", plan["reason"].get<std::string>(),
               data_parallel);
  }
  if (!plan["ignored_nodes"].empty()) {
    fmt::print("{} operators are not connected to the first one and are left out.\n",
               plan["ignored_nodes"].size());
  }
}

bool is_pipedream_flag(const std::string& name) {
  constexpr std::string_view kNames[] = {
      "strategy",         "profile", "profile-batch", "bandwidth",
      "activation-ratio", "memory",  "straight",      "fewer"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

}  // namespace

std::vector<planner::Level> parse_levels(const std::string& workers, const std::string& bandwidth) {
  const std::vector<std::string> counts = split(workers, ',');
  const std::vector<std::string> rates = split(bandwidth, ',');
  if (counts.size() != rates.size()) {
    fail_input("--workers has {} levels and --bandwidth has {}; give one number per level in each.",
               counts.size(), rates.size());
  }
  std::vector<planner::Level> levels;
  for (size_t level = 0; level < counts.size(); ++level) {
    levels.push_back({parse_count(counts[level], "--workers"), parse_bandwidth(rates[level])});
  }
  return levels;
}

planner::PipedreamOptions to_options(const PipedreamFlags& flags,
                                     std::vector<planner::Level> levels) {
  planner::PipedreamOptions options;
  options.levels = std::move(levels);
  options.activation_ratio = flags.activation_ratio;
  if (!flags.memory.empty()) {
    options.memory_bytes = static_cast<double>(parse_bytes(flags.memory, "--memory"));
  }
  options.straight = flags.straight;
  options.fewer = flags.fewer;
  planner::check(options);
  return options;
}

int parse_count(std::string_view text, std::string_view flag) {
  int value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < 0) {
    fail_input("{} has '{}', which is not a whole number.", flag, text);
  }
  return value;
}

void add_pipedream_flags(CLI::App& command, PipedreamFlags& flags) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    command.add_option(name, value, help)->group(kPipedreamGroup);
  };
  add("--strategy", flags.strategy, "pipedream: divide the network of --profile into stages");
  add("--profile", flags.profile,
      "Costs of the network's operators in PipeDream's text format; with --auto or --predict also "
      "what millrace profile wrote");
  add("--profile-batch", flags.profile_batch,
      "With --auto: samples of the mini-batch of a text profile [--batch]");
  add("--bandwidth", flags.bandwidth, "Bytes per second at each level, such as 1e10,1e9");
  add("--activation-ratio", flags.activation_ratio,
      "Count the time of activations between stages, divided by this [they are free]");
  add("--memory", flags.memory, "Memory of one worker: 16e9, 16GiB ... [no limit]");
  command.add_flag("--straight", flags.straight, "No stage on more than one worker")
      ->group(kPipedreamGroup);
  command.add_flag("--fewer", flags.fewer, "Workers may be left idle")->group(kPipedreamGroup);
}

bool uses_pipedream(const CLI::App& command, const PipedreamFlags& flags) {
  const bool chosen = command.count("--strategy") > 0;
  if (chosen) choose("--strategy", flags.strategy, {"pipedream"});
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0) continue;
    const std::string& name = option->get_lnames().front();
    if (name == "workers" || name == "json" || is_pipedream_flag(name) == chosen) continue;
    if (!chosen)
      fail_input("--{} goes with --strategy pipedream, or with --auto --profile FILE.", name);
    fail_input("--{} does not go with --strategy pipedream.", name);
  }
  if (!chosen) return false;
  for (const char* name : {"--profile", "--workers", "--bandwidth"}) {
    if (command.count(name) == 0) fail_input("{} is missing for --strategy pipedream.", name);
  }
  return true;
}

int run_pipedream(const PipedreamFlags& flags, const std::string& workers, bool json) {
  const planner::PipedreamOptions options =
      to_options(flags, parse_levels(workers, flags.bandwidth));
  const planner::Profile profile = planner::read_profile(flags.profile);
  const Json plan = describe(profile, options, planner::optimize_pipedream(profile, options));
  if (json) {
    fmt::print("{}\n", plan.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    print_pipedream_plan(plan);
  }
  return kExitSuccess;
}

}  // namespace millrace::cli
