#include "cli/flag_numbers.h"

#include <fmt/format.h>

#include <limits>

namespace millrace::cli {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

std::string number_for(const CLI::App& command, const std::string& flag) {
  const CLI::Option* option = command.get_option_no_throw(flag);
  if (option == nullptr) return "a value that it takes";
  const std::string type = option->get_type_name();
  if (option->get_expected_max() > 1) return "numbers with commas between them";
  return type == "INT" || type == "UINT" ? "a whole number" : "a number";
}

}  // namespace

CLI::Validator between(double low, double high) {
  const auto check = [low, high](const std::string& text) -> std::string {
    double value = 0;
    if (!CLI::detail::lexical_cast(text, value)) return {};  // CLI11 converts next, and refuses it
    if (value >= low && value <= high) return {};
    return high == kNoLimit ? fmt::format("is {}; give at least {}", text, low)
                            : fmt::format("is {}; give {} to {}", text, low, high);
  };
  return {check, ""};
}

CLI::Validator at_least(double low) { return between(low, kNoLimit); }

std::string refusal_of(const CLI::ParseError& error, const CLI::App& command) {
  std::string text = error.what();
  const std::string unreadable = "Could not convert: ";
  const size_t equals = text.find(" = ");
  if (text.starts_with(unreadable) && equals != std::string::npos) {
    const std::string flag = text.substr(unreadable.size(), equals - unreadable.size());
    return fmt::format("{} is '{}'; give {}", flag, text.substr(equals + 3),
                       number_for(command, flag));
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && text.ends_with("missing")) {
    return text.substr(0, text.find(':')) + " needs a value";
  }
  const size_t often = text.find(": At Most 1 required");
  if (often != std::string::npos) return text.substr(0, often) + " is given more than once";
  const size_t value = text.find(": is ");  // of the checks above
  return value == std::string::npos ? std::string() : text.erase(value, 1);
}

}  // namespace millrace::cli
