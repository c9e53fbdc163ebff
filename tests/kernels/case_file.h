// Text files of operators to test, one case to a line:
//
//   operator attribute=value ... shape ...      # comment
//   convolution stride=[2,2] padding=[1,1] dilation=[1,1] groups=1 2x3x9x9 5x3x3x3
//
// A value is true, false, an integer, a number with a point or exponent, [integers], or [numbers],
// of which one has a point. Shapes are the inputs; ":s32" are labels, ":u8" positions within a
// pooling window, ":positive" numbers above 0. "@tolerance=1e-4" holds for its line, or for all
// that follow if alone on a line.
#pragma once

#include <string>
#include <vector>

#include "testing.h"

namespace millrace::testing {

struct OperatorCase {
  std::string line;
  std::string type;
  graph::Attributes attributes;
  std::vector<graph::TensorType> inputs;
  std::vector<bool> positive;  // by input
  double tolerance = 2e-5;

  // Random values for the inputs, the same every time. `spaced`: see spaced_values.
  std::vector<Values> values(bool spaced = false) const;
};

// The cases of shapes/<name>.txt. Throws std::runtime_error with the line that cannot be read,
// or if there is none.
std::vector<OperatorCase> read_cases(const std::string& name);

}  // namespace millrace::testing
