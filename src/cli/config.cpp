#include "cli/config.h"

#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "cli/flag_names.h"
#include "graph/optimizers.h"

namespace millrace::cli {
namespace {

using OptionSet = std::set<const CLI::Option*>;

constexpr const char* kConfig = "--config";
constexpr const char* kFineTune = "--fine-tune";
// Of a command line, not of the job that it describes.
constexpr const char* kNotOfTheJob[] = {kConfig, kFineTune, "--print-config", "--resume", "--help"};

const CLI::Option* find_option(const CLI::App& command, const std::string& word) {
  if (!word.starts_with("--")) return nullptr;
  return command.get_option_no_throw(word.substr(0, word.find('=')));
}

// The values that a flag has among the words, in order.
std::vector<std::string> values_of(const std::vector<std::string>& words, const std::string& flag) {
  std::vector<std::string> values;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with(flag + "=")) values.push_back(words[i].substr(flag.size() + 1));
    if (words[i] == flag && i + 1 < words.size()) values.push_back(words[i + 1]);
  }
  return values;
}

std::string flag_of(const CLI::Option& option) { return "--" + option.get_lnames().front(); }

bool is_one_number(const CLI::Option& option) {
  const std::string taken = option.get_type_name();
  return option.get_delimiter() == '\0' &&
         (taken.starts_with("INT") || taken.starts_with("UINT") || taken.starts_with("FLOAT"));
}

class ConfigFile {
 public:
  ConfigFile(const CLI::App& command, std::string path)
      : command_(command), path_(std::move(path)) {}

  // Adds the words of flags that are not known yet.
  void add_words(OptionSet& known, std::vector<std::string>& words) const {
    if (std::filesystem::is_regular_file(std::filesystem::path(path_) / "job.yaml")) {
      fail_input("'{}' is a directory; its configuration is '{}'.", path_,
                 (std::filesystem::path(path_) / "job.yaml").string());
    }
    YAML::Node root;
    try {
      root = YAML::Load(read_text(path_));
    } catch (const YAML::Exception& error) {
      fail_input("'{}' is no YAML: mistake in line {}.", path_, error.mark.line + 1);
    }
    if (!root.IsMap()) fail_input("'{}' has no 'flag: value' lines.", path_);
    OptionSet own;
    for (const auto& entry : root) {
      const int line = entry.first.Mark().line + 1;
      if (!entry.first.IsScalar()) fail_input("'{}': line {} names no flag.", path_, line);
      const CLI::Option& option = option_named(entry.first.Scalar(), line);
      if (!own.insert(&option).second) {
        fail_input("'{}': line {} gives {} a second time.", path_, line, flag_of(option));
      }
      if (known.contains(&option)) continue;
      add_option(option, entry.second, line, words);
    }
    known.merge(own);
  }

 private:
  const CLI::Option& option_named(const std::string& name, int line) const {
    const CLI::Option* option = command_.get_option_no_throw("--" + name);
    if ("--" + name == kConfig) {
      fail_input("'{}': line {} names another file; give --config again on the command line.",
                 path_, line);
    }
    if (option != nullptr) return *option;
    std::vector<std::string> names;
    for (const CLI::Option* each : command_.get_options()) {
      for (const std::string& known : each->get_lnames()) names.push_back(known);
    }
    const std::string close = nearest_flag(name, names);
    fail_input("'{}': line {} has '{}', which is no flag of '{}'{}", path_, line, name,
               command_.get_name(),
               close.empty() ? "." : fmt::format("; did you mean '{}'?", close));
  }

  void add_option(const CLI::Option& option, const YAML::Node& value, int line,
                  std::vector<std::string>& words) const {
    if (option.get_items_expected_max() == 0) {
      const std::string word = value.IsScalar() ? value.Scalar() : "";
      if (word != "true" && word != "false") {
        fail_input("'{}': line {}: {} is true or false.", path_, line, flag_of(option));
      }
      if (word == "true") words.push_back(flag_of(option));
      return;
    }
    std::vector<std::string> parts;
    if (value.IsScalar()) parts.push_back(value.Scalar());
    if (value.IsSequence()) {
      for (const YAML::Node& part : value) parts.push_back(part.IsScalar() ? part.Scalar() : "");
    }
    if (parts.empty()) fail_input("'{}': line {} gives {} no value.", path_, line, flag_of(option));
    if (parts.size() > 1 && is_one_number(option)) {
      fail_input("'{}': line {} gives {} a list of {}; it takes one number.", path_, line,
                 flag_of(option), parts.size());
    }
    words.push_back(fmt::format("{}={}", flag_of(option), fmt::join(parts, ",")));
  }

  const CLI::App& command_;
  std::string path_;
};

// What fine-tuning from a file means, where nothing else is said.
std::vector<std::pair<std::string, std::string>> fine_tuning(const std::string& file,
                                                             const std::string& optimizer,
                                                             bool has_head) {
  const graph::OptimizerDefinition* row = graph::find_optimizer(optimizer);
  const bool is_adam =
      row != nullptr && std::ranges::find(row->settings, "adam_epsilon") != row->settings.end();
  std::vector<std::pair<std::string, std::string>> flags = {{"--load-weights", file},
                                                            {"--new-layers", "auto"},
                                                            {"--lr", is_adam ? "0.0001" : "0.005"},
                                                            {"--lr-schedule", "cosine"}};
  if (has_head) {
    flags.emplace_back("--head-lr", is_adam ? "0.001" : "0.1");
  } else {
    flags.emplace_back("--label-smoothing", "0.1");
  }
  return flags;
}

bool is_of_the_job(const CLI::Option& option) {
  if (option.get_lnames().empty()) return false;
  const std::string flag = flag_of(option);
  return std::none_of(std::begin(kNotOfTheJob), std::end(kNotOfTheJob),
                      [&](const char* other) { return flag == other; });
}

std::string as_yaml(const CLI::App& command, bool with_defaults) {
  YAML::Emitter text;
  text << YAML::BeginMap;
  for (const CLI::Option* option : command.get_options()) {
    if (!is_of_the_job(*option)) continue;
    const bool is_flag = option->get_items_expected_max() == 0;
    std::string value = with_defaults && !is_flag ? option->get_default_str() : "";
    if (option->count() > 0) {
      value = is_flag ? "true" : fmt::format("{}", fmt::join(option->results(), ","));
    }
    if (value.empty()) continue;
    text << YAML::Key << option->get_lnames().front() << YAML::Value << value;
  }
  text << YAML::EndMap;
  return std::string(text.c_str()) + "\n";
}

}  // namespace

std::vector<std::string> with_config(const CLI::App& program, std::vector<std::string> arguments) {
  const CLI::App* command = nullptr;
  for (const CLI::App* each : program.get_subcommands({})) {
    if (!arguments.empty() && each->get_name() == arguments[0]) command = each;
  }
  if (command == nullptr || command->get_option_no_throw(kConfig) == nullptr) return arguments;
  OptionSet known;
  for (const std::string& word : arguments) {
    if (const CLI::Option* option = find_option(*command, word)) known.insert(option);
  }
  std::vector<std::string> words;
  std::vector<std::string> files = values_of(arguments, kConfig);
  std::reverse(files.begin(), files.end());
  for (const std::string& file : files) ConfigFile(*command, file).add_words(known, words);
  std::vector<std::string> all = words;
  all.insert(all.end(), arguments.begin() + 1, arguments.end());
  const std::vector<std::string> tuned = values_of(all, kFineTune);
  if (!tuned.empty()) {
    const std::vector<std::string> optimizers = values_of(all, "--optimizer");
    const std::string optimizer = optimizers.empty() ? "sgd" : optimizers.back();
    for (const auto& [flag, value] :
         fine_tuning(tuned.back(), optimizer, !values_of(all, "--head").empty())) {
      if (!known.contains(find_option(*command, flag))) words.push_back(flag + "=" + value);
    }
  }
  arguments.insert(arguments.begin() + 1, words.begin(), words.end());
  return arguments;
}

std::string given_as_yaml(const CLI::App& command) { return as_yaml(command, false); }

std::string settings_as_yaml(const CLI::App& command) { return as_yaml(command, true); }

}  // namespace millrace::cli
