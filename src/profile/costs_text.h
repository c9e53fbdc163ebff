// Costs of programs on their way between processes.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "simulate/costed_program.h"

namespace millrace::profile {

// What a member of a stage takes. Plain data.
struct CostsOfMember {
  int stage = 0;
  int member = 0;
  simulate::CostedProgram program;
  std::map<std::string, double> copies = {};
  double spread = 0;
};

// One process writes, another of the same job reads: no other input is expected.
std::string costs_to_text(const std::vector<CostsOfMember>& costs);
std::vector<CostsOfMember> costs_from_text(std::string_view text);

}  // namespace millrace::profile
