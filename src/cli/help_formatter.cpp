#include "cli/help_formatter.h"

#include <fmt/format.h>

#include "base/text.h"

namespace millrace::cli {
namespace {

constexpr size_t kWidth = 96;
constexpr size_t kNameColumn = 30;

}  // namespace

std::string wrap(const std::string& text, size_t width, size_t indent) {
  std::string result;
  size_t column = 0;
  for (const std::string& word : split(text, ' ')) {
    if (column > 0 && column + 1 + word.size() > width) {
      result += "\n" + std::string(indent, ' ');
      column = 0;
    } else if (column > 0) {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
  }
  return result;
}

HelpFormatter::HelpFormatter() {
  column_width(kNameColumn);
  label("OPTIONS", "FLAGS");
  label("SUBCOMMAND", "COMMAND");
  label("Subcommands", "Commands");
  label("Positionals", "Arguments");
  label("TEXT", "...");
  label("INT", "N");
  label("UINT", "N");
  label("FLOAT", "X");
}

std::string HelpFormatter::make_help(const CLI::App* command, std::string name,
                                     CLI::AppFormatMode mode) const {
  std::string text = CLI::Formatter::make_help(command, std::move(name), mode);
  for (size_t at = text.find("\n\n\n"); at != std::string::npos; at = text.find("\n\n\n", at)) {
    text.erase(at, 1);
  }
  return text;
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  const std::string name = "  " + make_option_name(option, is_positional) +
                           (is_positional ? "" : make_option_opts(option));
  const std::string gap = name.size() + 1 < kNameColumn
                              ? std::string(kNameColumn - name.size(), ' ')
                              : "\n" + std::string(kNameColumn, ' ');
  return name + gap + wrap(make_option_desc(option), kWidth - kNameColumn, kNameColumn) + "\n";
}

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  if (option->get_type_size() == 0) return "";
  const std::string label = get_label(option->get_type_name());
  if (option->get_delimiter() == '\0') return " " + label;
  return label == get_label("TEXT") ? " A,B,..." : " N,N,...";
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  const std::string& value = option->get_default_str();
  return option->get_description() + (value.empty() ? "" : fmt::format(" [{}]", value));
}

std::string HelpFormatter::make_description(const CLI::App* command) const {
  return wrap(command->get_description(), kWidth, 0) + "\n";
}

}  // namespace millrace::cli
