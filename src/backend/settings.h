// Which kind of device a job runs on, as plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace::backend {

// Of the strict backend, `order` says when its queues run. eager: at once; lazy: as late as they
// may; random: now and then, in an order drawn by `seed`; slow: at once but for the stream that was
// made as number `seed`, which is as late as it may.
struct BackendSettings {
  enum class Kind : uint8_t { cpu, strict };
  enum class Order : uint8_t { eager, lazy, random, slow };
  Kind kind = Kind::cpu;
  Order order = Order::lazy;
  uint64_t seed = 0;
  bool checks = true;  // of the strict backend: whether commands may meet in any order

  bool operator==(const BackendSettings&) const = default;
};

// "cpu" or "strict", and "eager", "lazy", "random:SEED" or "slow:NUMBER". Throws InputError for
// anything else.
BackendSettings parse_backend(std::string_view name, std::string_view order);

}  // namespace millrace::backend
