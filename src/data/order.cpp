#include "data/order.h"

#include <utility>

#include "base/random.h"

namespace millrace::data {
namespace {

constexpr uint64_t kOrderStream = 0x6F72646572;

constexpr uint64_t kBalancedStream = 0x62616C616E63;

}  // namespace

BalancedOrder::BalancedOrder(std::vector<std::vector<uint64_t>> classes)
    : classes_(std::move(classes)) {
  std::erase_if(classes_, [](const auto& records) { return records.empty(); });
}

uint64_t BalancedOrder::at(uint64_t position, uint64_t seed, uint64_t epoch) const {
  const Random random(seed, hash_combine(kBalancedStream, epoch));
  const auto& records = classes_[random.below(2 * position, classes_.size())];
  return records[random.below(2 * position + 1, records.size())];
}

ShuffledOrder::ShuffledOrder(uint64_t count, uint64_t seed, uint64_t epoch)
    : permutation_(count, hash_combine(hash_combine(seed, kOrderStream), epoch)) {}

}  // namespace millrace::data
