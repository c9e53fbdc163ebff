// The flags of a margin head.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>

#include "graph/margin_head.h"

namespace millrace::cli {

// What the user typed. Without --head there is none.
struct HeadFlags {
  std::string head;
  std::string margin;
  double scale = 64;
  double filter = 0;
  std::optional<double> learning_rate;
  std::string gradient = "exact";
  std::string parallel = "mp";
  double sample_rate = 0.1;
  std::string momentum = "lazy";
  std::string storage = "fp32";
};

void add_head_flags(CLI::App& command, HeadFlags& flags);

// Understands the flags. Throws InputError naming the flag at fault.
std::optional<graph::MarginHeadOptions> to_head(const HeadFlags& flags, int64_t classes);

// fp32, bf16 or fp16. Throws InputError naming --head-dtype.
graph::DataType head_storage(const std::string& text);

}  // namespace millrace::cli
