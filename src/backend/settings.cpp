#include "backend/settings.h"

#include <charconv>

#include "base/error.h"

namespace millrace::backend {
namespace {

// Whether the text is the prefix and a number.
bool read_number(std::string_view text, std::string_view prefix, uint64_t& number) {
  if (!text.starts_with(prefix)) return false;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + prefix.size(), end, number);
  return parsed.ec == std::errc() && parsed.ptr == end;
}

}  // namespace

BackendSettings parse_backend(std::string_view name, std::string_view order) {
  BackendSettings settings;
  if (name == "strict") {
    settings.kind = BackendSettings::Kind::strict;
  } else if (name != "cpu") {
    fail_input("‹backend› '{}' is not known; use cpu or strict.", name);
  }
  if (order.empty()) return settings;
  if (settings.kind != BackendSettings::Kind::strict) {
    fail_input("‹strict_order› has no effect on ‹backend› {}; it is for ‹backend› strict.", name);
  }
  using Order = BackendSettings::Order;
  if (order == "lazy") {
    settings.order = Order::lazy;
  } else if (order == "eager") {
    settings.order = Order::eager;
  } else if (read_number(order, "random:", settings.seed)) {
    settings.order = Order::random;
  } else if (read_number(order, "slow:", settings.seed)) {
    settings.order = Order::slow;
  } else {
    fail_input("‹strict_order› '{}' is not known; use lazy, eager, random:SEED or slow:NUMBER.",
               order);
  }
  return settings;
}

}  // namespace millrace::backend
