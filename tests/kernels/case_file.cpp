#include "case_file.h"

#include <cctype>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "base/random.h"

namespace millrace::testing {
namespace {

std::vector<int64_t> integers(const std::string& text, char separator) {
  std::vector<int64_t> numbers;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    numbers.push_back(std::stoll(part));
  }
  return numbers;
}

graph::Attributes::Value attribute_value(const std::string& text) {
  if (text == "true") return true;
  if (text == "false") return false;
  if (text.front() == '[' && text.find('.') != std::string::npos) {
    graph::Attributes::Numbers numbers;
    std::istringstream stream(text.substr(1, text.size() - 2));
    for (std::string part; std::getline(stream, part, ',');) numbers.push_back(std::stod(part));
    return numbers;
  }
  if (text.front() == '[') return integers(text.substr(1, text.size() - 2), ',');
  if (std::isalpha(static_cast<unsigned char>(text.front())) != 0) return text;
  if (text.find_first_of(".e") != std::string::npos) return std::stod(text);
  return int64_t{std::stoll(text)};
}

void add_input(OperatorCase& entry, const std::string& token) {
  const size_t colon = token.find(':');
  const std::string kind = colon == std::string::npos ? "" : token.substr(colon + 1);
  graph::DataType dtype = graph::DataType::f32;
  if (kind == "s32") {
    dtype = graph::DataType::s32;
  } else if (kind == "u8") {
    dtype = graph::DataType::u8;
  } else if (kind == "f16") {
    dtype = graph::DataType::f16;
  } else if (kind == "bf16") {
    dtype = graph::DataType::bf16;
  } else if (!kind.empty() && kind != "positive") {
    throw std::runtime_error("unknown kind of input '" + kind + "'");
  }
  entry.inputs.push_back({integers(token.substr(0, colon), 'x'), dtype});
  entry.positive.push_back(kind == "positive");
}

OperatorCase parse_line(const std::string& line, double& tolerance) {
  OperatorCase entry;
  entry.line = line;
  entry.tolerance = tolerance;
  std::istringstream stream(line.substr(0, line.find('#')));
  for (std::string token; stream >> token;) {
    const size_t equals = token.find('=');
    if (token.starts_with("@tolerance=")) {
      entry.tolerance = std::stod(token.substr(equals + 1));
    } else if (equals != std::string::npos) {
      entry.attributes.set(token.substr(0, equals), attribute_value(token.substr(equals + 1)));
    } else if (entry.type.empty()) {
      entry.type = token;
    } else {
      add_input(entry, token);
    }
  }
  if (entry.type.empty()) tolerance = entry.tolerance;
  return entry;
}

// A position inside the image for every window.
Values window_positions(const OperatorCase& entry, const graph::TensorType& type, uint64_t seed) {
  const auto& kernel = entry.attributes.integers("kernel");
  const auto& stride = entry.attributes.integers("stride");
  const auto& padding = entry.attributes.integers("padding");
  const auto& image = entry.attributes.integers("input_shape");
  const Random random(seed, 4);
  uint64_t draw = 0;
  Values values(static_cast<size_t>(type.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t q = static_cast<int64_t>(i) % type.shape[3];
    const int64_t p = static_cast<int64_t>(i) / type.shape[3] % type.shape[2];
    for (;;) {
      const auto position =
          static_cast<int64_t>(random.below(draw++, static_cast<uint64_t>(kernel[0] * kernel[1])));
      const int64_t h = p * stride[0] - padding[0] + position / kernel[1];
      const int64_t w = q * stride[1] - padding[1] + position % kernel[1];
      if (h < 0 || h >= image[2] || w < 0 || w >= image[3]) continue;
      values[i] = static_cast<double>(position);
      break;
    }
  }
  return values;
}

int64_t classes_of(const OperatorCase& entry) {
  for (const graph::TensorType& type : entry.inputs) {
    if (type.shape.size() == 2) return type.shape[1];
  }
  throw std::runtime_error("labels without a matrix: " + entry.line);
}

}  // namespace

std::vector<Values> OperatorCase::values(bool spaced) const {
  std::vector<Values> all;
  const uint64_t seed = hash_bytes(line.data(), line.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const uint64_t own = hash_combine(seed, i);
    if (inputs[i].dtype == graph::DataType::s32) {
      all.push_back(random_labels(inputs[i], classes_of(*this), own));
    } else if (inputs[i].dtype == graph::DataType::u8) {
      all.push_back(window_positions(*this, inputs[i], own));
    } else if (spaced && !positive[i]) {
      all.push_back(spaced_values(inputs[i], own));
      // Half the spacing for all but the first, so that sums of two inputs keep away from 0 too.
      if (i > 0) {
        for (double& value : all.back()) value /= 2;
      }
    } else {
      all.push_back(random_values(inputs[i], own, positive[i]));
    }
  }
  return all;
}

std::vector<OperatorCase> read_cases(const std::string& name) {
  const std::string path = std::string(MILLRACE_TEST_DATA) + "/shapes/" + name + ".txt";
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  std::vector<OperatorCase> cases;
  double tolerance = OperatorCase().tolerance;
  for (std::string line; std::getline(file, line);) {
    try {
      OperatorCase entry = parse_line(line, tolerance);
      if (!entry.type.empty()) cases.push_back(std::move(entry));
    } catch (const std::exception& error) {
      throw std::runtime_error(path + ": " + error.what() + " in '" + line + "'");
    }
  }
  if (cases.empty()) throw std::runtime_error("no cases in " + path);
  return cases;
}

}  // namespace millrace::testing
