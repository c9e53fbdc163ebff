#include "planner/cluster/yaml.h"

#include <yaml-cpp/yaml.h>

#include <charconv>
#include <cmath>

#include "base/error.h"

namespace millrace::planner {
namespace {

constexpr int kMostParts = 100000;  // aliases may repeat each other

Json scalar_of(const YAML::Node& node) {
  const std::string& word = node.Scalar();
  if (node.Tag() == "!") return word;  // quoted
  if (word == "true" || word == "false") return word == "true";
  if (word == "null" || word == "~" || word.empty()) return nullptr;
  double number = 0;
  const char* begin = word.data() + (word[0] == '+' ? 1 : 0);
  const char* end = word.data() + word.size();
  const auto [rest, status] = std::from_chars(begin, end, number);
  if (status == std::errc() && rest == end && std::isfinite(number)) return number;
  return word;
}

class Converter {
 public:
  explicit Converter(const std::string& file) : file_(file) {}

  Json convert(const YAML::Node& node) {
    if (++nodes_ > kMostParts) fail_input("'{}' has more than {} parts.", file_, kMostParts);
    if (node.IsScalar()) return scalar_of(node);
    if (node.IsSequence()) {
      Json list = Json::array();
      for (const YAML::Node& entry : node) list.push_back(convert(entry));
      return list;
    }
    if (!node.IsMap()) return nullptr;
    Json object = Json::object();
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) {
        fail_input("'{}': a field in line {} has no name.", file_, entry.first.Mark().line + 1);
      }
      object[entry.first.Scalar()] = convert(entry.second);
    }
    return object;
  }

 private:
  const std::string& file_;
  int nodes_ = 0;
};

}  // namespace

Json parse_yaml(std::string_view text, const std::string& file) {
  try {
    return Converter(file).convert(YAML::Load(std::string(text)));
  } catch (const YAML::Exception& error) {
    fail_input("'{}' is neither JSON nor YAML: mistake in line {}.", file, error.mark.line + 1);
  }
}

}  // namespace millrace::planner
