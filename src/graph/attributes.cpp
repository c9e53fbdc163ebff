#include "graph/attributes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

namespace millrace::graph {
namespace {

template <typename Wanted, typename Map>
const Wanted& get(const Map& values, std::string_view name) {
  const auto found = values.find(name);
  if (found == values.end()) throw std::logic_error(fmt::format("no attribute '{}'", name));
  if (const auto* value = std::get_if<Wanted>(&found->second)) return *value;
  throw std::logic_error(fmt::format("attribute '{}' has another type", name));
}

}  // namespace

bool Attributes::flag(std::string_view name) const { return has(name) && get<bool>(values_, name); }
int64_t Attributes::integer(std::string_view name) const { return get<int64_t>(values_, name); }
double Attributes::number(std::string_view name) const { return get<double>(values_, name); }
const std::string& Attributes::text(std::string_view name) const {
  return get<std::string>(values_, name);
}
const Attributes::Integers& Attributes::integers(std::string_view name) const {
  return get<Integers>(values_, name);
}

const Attributes::Numbers& Attributes::numbers(std::string_view name) const {
  return get<Numbers>(values_, name);
}

std::string Attributes::to_string() const {
  std::vector<std::string> parts;
  for (const auto& [name, value] : values_) {
    parts.push_back(std::visit(
        [&name = name](const auto& held) {
          using Held = std::decay_t<decltype(held)>;
          if constexpr (std::is_same_v<Held, Integers> || std::is_same_v<Held, Numbers>) {
            return fmt::format("{}=[{}]", name, fmt::join(held, ","));
          } else {
            return fmt::format("{}={}", name, held);
          }
        },
        value));
  }
  return fmt::format("{}", fmt::join(parts, " "));
}

}  // namespace millrace::graph
