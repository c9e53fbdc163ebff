#include "backend/settings.h"

#include <charconv>

#include "base/error.h"

namespace millrace {
namespace {

constexpr std::string_view kRandom = "random:";

}  // namespace

BackendSettings parse_backend(std::string_view name, std::string_view order) {
  BackendSettings settings;
  if (name == "strict") {
    settings.kind = BackendSettings::Kind::strict;
  } else if (name != "cpu") {
    fail_input("--backend '{}' is not known; use cpu or strict.", name);
  }
  if (order.empty()) return settings;
  if (settings.kind != BackendSettings::Kind::strict) {
    fail_input("--strict-order has no effect on --backend {}; it is for --backend strict.", name);
  }
  if (order == "lazy") return settings;
  if (order == "eager") {
    settings.order = BackendSettings::Order::eager;
    return settings;
  }
  const char* end = order.data() + order.size();
  if (order.starts_with(kRandom)) {
    const auto parsed = std::from_chars(order.data() + kRandom.size(), end, settings.seed);
    settings.order = BackendSettings::Order::random;
    if (parsed.ec == std::errc() && parsed.ptr == end) return settings;
  }
  fail_input("--strict-order '{}' is not known; use lazy, eager or random:SEED.", order);
}

}  // namespace millrace
