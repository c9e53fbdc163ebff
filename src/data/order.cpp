#include "data/order.h"

#include "base/random.h"

namespace millrace {
namespace {

constexpr uint64_t kOrderStream = 0x6F72646572;

}  // namespace

ShuffledOrder::ShuffledOrder(uint64_t count, uint64_t seed, uint64_t epoch)
    : permutation_(count, hash_combine(hash_combine(seed, kOrderStream), epoch)) {}

}  // namespace millrace
