// Forward and gradients of operators against PyTorch's, with the references and with the best
// kernels, images plain and in blocks; see tests/golden/README.md for the files. What PyTorch has
// no counterpart of is listed in tests/references/operators.txt with what holds it instead.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "data/safetensors.h"
#include "gradient_check.h"

namespace millrace::testing {
namespace {

std::filesystem::path golden_directory() {
  const char* other = std::getenv("MILLRACE_GOLDEN_DIRECTORY");
  return other != nullptr ? other : std::filesystem::path(MILLRACE_TEST_DATA) / "../golden";
}

struct Golden {
  graph::TensorType type;
  Values values;
};

template <typename T>
Values values_as(const data::SafetensorsEntry& entry) {
  Values values(entry.data.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T element;
    std::memcpy(&element, entry.data.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(element);
  }
  return values;
}

Golden load(const data::SafetensorsFile& file, const std::string& name) {
  const data::SafetensorsEntry& entry = file.at(name);
  if (entry.dtype == "I32") return {{entry.shape, graph::DataType::s32}, values_as<int32_t>(entry)};
  if (entry.dtype != "F32") throw std::runtime_error(name + " is of type " + entry.dtype);
  return {{entry.shape, graph::DataType::f32}, values_as<float>(entry)};
}

graph::Attributes attributes_of(const nlohmann::json& description) {
  graph::Attributes attributes;
  for (const auto& [name, value] : description.at("attributes").items()) {
    if (value.is_boolean()) {
      attributes.set(name, value.get<bool>());
    } else if (value.is_number_integer()) {
      attributes.set(name, value.get<int64_t>());
    } else if (value.is_number()) {
      attributes.set(name, value.get<double>());
    } else if (!value.empty() && value.front().is_number_float()) {
      attributes.set(name, value.get<std::vector<double>>());
    } else {
      attributes.set(name, value.get<std::vector<int64_t>>());
    }
  }
  if (description.at("mode") == "eval") attributes.set("inference", true);
  return attributes;
}

struct Way {
  kernels::KernelOptions options;
  std::string layout;
};

class GoldenCase {
 public:
  GoldenCase(const data::SafetensorsFile& file, const nlohmann::json& description)
      : file_(file),
        name_(description.at("name").get<std::string>()),
        gradients_(description.at("gradients").get<std::vector<size_t>>()) {
    for (size_t i = 0; i < description.at("inputs").get<size_t>(); ++i) {
      Golden input = load(file, name_ + "/input" + std::to_string(i));
      types_.push_back(input.type);
      inputs_.push_back(std::move(input.values));
    }
    type_ = description.at("operator").get<std::string>();
    attributes_ = attributes_of(description);
  }

  // The types of the operator and of what its gradient rule adds.
  std::set<std::string> operators() const {
    const OperatorWithGradient tested(type_, attributes_, types_, !gradients_.empty());
    std::set<std::string> types;
    for (const graph::OperatorId id : tested.graph().order())
      types.insert(tested.graph().op(id).type);
    return types;
  }

  void check(const Way& way) const {
    SCOPED_TRACE(name_ + (way.options.reference_only ? ", reference " : ", best ") + way.layout);
    const OperatorWithGradient tested(type_, attributes_, types_, !gradients_.empty());
    const graph::TensorType& output = tested.graph().tensor(tested.outputs()[0]).type;
    const Values seed = gradients_.empty() ? Values(static_cast<size_t>(output.elements()), 1.0)
                                           : load(file_, name_ + "/grad_output0").values;
    const auto values = tested.run(inputs_, seed, way.options, graph::Layout(way.layout));
    const Golden expected = load(file_, name_ + "/output0");
    EXPECT_EQ(output.shape, expected.type.shape);
    expect_near("output0", values.at(tested.outputs()[0]));
    for (size_t input : gradients_) {
      const graph::TensorId gradient = tested.input_gradients().at(input);
      ASSERT_NE(gradient, graph::kNone) << "input " << input;
      expect_near("grad_input" + std::to_string(input), values.at(gradient));
    }
    if (file_.find(name_ + "/running_mean_after") == nullptr) return;
    expect_near("running_mean_after", values.at(tested.inputs()[3]));
    expect_near("running_var_after", values.at(tested.inputs()[4]));
  }

 private:
  void expect_near(const std::string& tensor, const Values& actual) const {
    EXPECT_EQ(difference(actual, load(file_, name_ + "/" + tensor).values, 2e-5), "") << tensor;
  }

  const data::SafetensorsFile& file_;
  std::string name_;
  std::string type_;
  graph::Attributes attributes_;
  std::vector<graph::TensorType> types_;
  std::vector<Values> inputs_;
  std::vector<size_t> gradients_;
};

nlohmann::json golden_cases() {
  std::ifstream stream(golden_directory() / "operators.json");
  return nlohmann::json::parse(stream);
}

TEST(Golden, OperatorsAgreeWithPyTorch) {
  const data::SafetensorsFile file(golden_directory() / "operators.safetensors");
  const nlohmann::json cases = golden_cases();
  ASSERT_GE(cases.size(), 50u);
  kernels::KernelOptions reference;
  reference.reference_only = true;
  kernels::KernelOptions best;
  for (const auto& description : cases) {
    const GoldenCase golden(file, description);
    golden.check({reference, ""});
    for (const char* layout : {"", "aBcd16b", "aBcd8b"}) golden.check({best, layout});
  }
}

// Lines of an operator type, the file of the repository that holds it, and against what.
std::map<std::string, std::string> other_references(const std::filesystem::path& repository) {
  std::ifstream stream(repository / "tests/references/operators.txt");
  std::map<std::string, std::string> files;
  for (std::string line; std::getline(stream, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::istringstream words(line);
    std::string type, file, against;
    words >> type >> file >> against;
    EXPECT_FALSE(against.empty()) << line;
    EXPECT_TRUE(std::filesystem::exists(repository / file)) << line;
    EXPECT_TRUE(files.emplace(type, file).second) << type << " is listed twice";
  }
  return files;
}

TEST(Golden, EveryOperatorHasAReferenceThatIsNotOurs) {
  const data::SafetensorsFile file(golden_directory() / "operators.safetensors");
  std::set<std::string> golden;
  for (const auto& description : golden_cases()) {
    golden.merge(GoldenCase(file, description).operators());
  }
  auto others = other_references(std::filesystem::path(MILLRACE_TEST_DATA) / "../..");
  for (const graph::OperatorDefinition& definition : graph::all_definitions()) {
    const std::string type(definition.type);
    const bool listed = others.erase(type) > 0;
    EXPECT_NE(golden.contains(type), listed)
        << type << (listed ? " has golden tensors; take it" : " has none; list it")
        << (listed ? " off" : " in") << " tests/references/operators.txt";
  }
  for (const auto& [type, place] : others) ADD_FAILURE() << "there is no operator " << type;
}

}  // namespace
}  // namespace millrace::testing
