// Named constants of an operator: strides, epsilon, flags. Plain data, printed and compared.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace millrace::graph {

class Attributes {
 public:
  using Integers = std::vector<int64_t>;
  using Numbers = std::vector<double>;
  using Value = std::variant<bool, int64_t, double, std::string, Integers, Numbers>;

  Attributes() = default;
  Attributes(std::initializer_list<std::pair<const std::string, Value>> values) : values_(values) {}

  void set(const std::string& name, Value value) { values_[name] = std::move(value); }
  // Takes over those of another.
  void set_all(const Attributes& others) {
    for (const auto& [name, value] : others.values_) values_[name] = value;
  }
  bool has(std::string_view name) const { return values_.find(name) != values_.end(); }

  // The getters throw std::logic_error for a missing name or another type: a broken invariant,
  // never a user's mistake. `flag` is false when missing.
  bool flag(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  const Integers& integers(std::string_view name) const;
  const Numbers& numbers(std::string_view name) const;

  // "groups=1 stride=[2,2]".
  std::string to_string() const;

  bool operator==(const Attributes&) const = default;

 private:
  std::map<std::string, Value, std::less<>> values_;
};

}  // namespace millrace::graph
