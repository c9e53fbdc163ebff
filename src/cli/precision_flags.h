// The flags of mixed precision.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "passes/settings.h"

namespace millrace::cli {

// What the user typed.
struct PrecisionFlags {
  std::string precision = "fp32";
  std::string arithmetic = "auto";
  std::vector<std::string> keep;
  std::string communication;  // empty: as the precision
};

void add_precision_flags(CLI::App& command, PrecisionFlags& flags);

// Understands the flags. Throws InputError naming the flag at fault.
passes::PrecisionSettings to_precision(const PrecisionFlags& flags);

// fp32, fp16 or bf16. Throws InputError naming the flag.
graph::DataType precision_type(const std::string& text, std::string_view flag = "--precision");

}  // namespace millrace::cli
