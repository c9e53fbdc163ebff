// The look of --help: two columns, wrapped, defaults in brackets behind the text.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Formatter.hpp>
#include <string>

namespace millrace::cli {

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter();

  std::string make_help(const CLI::App* command, std::string name,
                        CLI::AppFormatMode mode) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
  std::string make_description(const CLI::App* command) const override;
};

// Breaks text at spaces into lines of at most `width`, each but the first behind `indent`
// spaces.
std::string wrap(const std::string& text, size_t width, size_t indent);

}  // namespace millrace::cli
