#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "base/version.h"
#include "cli/command.h"
#include "cli/config.h"
#include "cli/flag_effects.h"
#include "cli/flag_numbers.h"
#include "cli/help_formatter.h"

namespace millrace::cli {
namespace {

constexpr const char* kDescription =
    "Millrace trains image classifiers. It compiles the whole training step into one static "
    "program, knows its peak memory before the first step, and runs it.";

constexpr const char* kStart = R"(Start here:
    millrace demo
    millrace train --model resnet50 --batch 64 --steps 10
    millrace plan --model vgg16 --batch 28 --device-memory 12066MiB
    millrace train --help)";

// The command that the user named, down to the last subcommand.
CLI::App* innermost(CLI::App* command) {
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  return command;
}

std::string full_name(const CLI::App* command) {
  std::string name = command->get_name();
  for (command = command->get_parent(); command != nullptr; command = command->get_parent()) {
    name = command->get_name() + " " + name;
  }
  return name;
}

// Without the name of the program: "bench head".
std::string name_below(const CLI::App& program, const CLI::App& command) {
  const std::string name = full_name(&command);
  return name.substr(std::min(name.size(), program.get_name().size() + 1));
}

[[noreturn]] void fail_unknown(const CLI::App* command, const std::string& argument) {
  std::vector<std::string> candidates;
  const bool flag = argument.starts_with("-");
  if (flag) {
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) candidates.push_back("--" + name);
    }
  } else {
    for (const CLI::App* sub : command->get_subcommands({})) candidates.push_back(sub->get_name());
  }
  const std::string word = argument.substr(0, argument.find('='));
  const std::string close = nearest(word, candidates);
  fail_input("{} '{}' is not known to '{}'; {}", flag ? "Flag" : "Argument", word,
             full_name(command),
             close.empty() ? fmt::format("see '{} --help'.", full_name(command))
                           : fmt::format("did you mean '{}'?", close));
}

void require_no_extras(CLI::App* command) {
  for (CLI::App* level = innermost(command); level != nullptr; level = level->get_parent()) {
    std::vector<std::string> extras = level->remaining();
    if (extras.empty()) continue;
    const auto flag = std::find_if(extras.begin(), extras.end(),
                                   [](const std::string& text) { return text.starts_with("-"); });
    fail_unknown(innermost(command), flag == extras.end() ? extras.front() : *flag);
  }
}

void allow_extras_everywhere(CLI::App* command) {
  command->allow_extras();
  for (CLI::App* sub : command->get_subcommands({})) allow_extras_everywhere(sub);
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  while (!text.empty() && (text.back() == ' ' || text.back() == '.')) text.pop_back();
  return text;
}

// An empty word is mostly a variable of a script that was not set.
void require_values(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty() || option->count() == 0) continue;
    const std::vector<std::string>& values = option->results();
    if (std::any_of(values.begin(), values.end(), [](const auto& text) { return text.empty(); })) {
      fail_input("--{} is empty; give it a value or leave it out.", option->get_lnames().front());
    }
  }
}

}  // namespace

int run_command_line(std::vector<std::string> arguments, comm::MpiSession* session,
                     Interruption& interruption) {
  CLI::App program(kDescription, "millrace");
  program.formatter(std::make_shared<HelpFormatter>());
  program.footer(kStart);
  program.set_version_flag("--version", fmt::format("millrace {}", kVersion));
  Action chosen;
  add_train_command(program, chosen, session, interruption);
  add_plan_command(program, chosen, session);
  add_profile_command(program, chosen, session);
  add_tune_command(program, chosen, interruption);
  add_eval_command(program, chosen);
  add_predict_command(program, chosen);
  add_embed_command(program, chosen);
  add_verify_command(program, chosen);
  add_export_command(program, chosen);
  add_data_command(program, chosen, interruption);
  add_ckpt_command(program, chosen);
  add_bench_command(program, chosen, session, interruption);
  add_report_command(program, chosen);
  add_demo_command(program, chosen, interruption);
  allow_extras_everywhere(&program);
  const bool named = !arguments.empty();
  try {
    arguments = with_config(program, std::move(arguments));
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
    program.parse(std::move(arguments));
  } catch (const CLI::Success& request) {
    return program.exit(request);
  } catch (const CLI::ParseError& error) {
    const CLI::App* command = innermost(&program);
    const std::string refusal = one_line(refusal_of(error, *command));
    if (!refusal.empty()) fail_input("{}.", refusal);
    fail_input("{}; see '{} --help'.", one_line(error.what()), full_name(command));
  }
  require_no_extras(&program);
  require_values(*innermost(&program));
  const CLI::App* command = innermost(&program);
  require_effects(*command, flag_rules(name_below(program, *command)));
  if (!chosen) {
    fmt::print("{}", program.help());
    return named ? kExitBadInput : kExitSuccess;
  }
  return chosen();
}

}  // namespace millrace::cli
