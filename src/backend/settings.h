// Which kind of device a job runs on, as plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

// Of the strict backend, `order` says when its queues run. eager: at once; lazy: as late as they
// may; random: now and then, in an order drawn by `seed`.
struct BackendSettings {
  enum class Kind : uint8_t { cpu, strict };
  enum class Order : uint8_t { eager, lazy, random };
  Kind kind = Kind::cpu;
  Order order = Order::lazy;
  uint64_t seed = 0;

  bool operator==(const BackendSettings&) const = default;
};

// "cpu" or "strict", and "eager", "lazy" or "random:SEED". Throws InputError for anything else.
BackendSettings parse_backend(std::string_view name, std::string_view order);

}  // namespace millrace
