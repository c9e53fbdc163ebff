// Values that each member brings, known to all, and their sums by a plain loop.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace millrace::comm {

template <typename T>
T value_of(int member, int64_t index, int round) {
  const uint64_t mixed = (static_cast<uint64_t>(index) * 2654435761u +
                          static_cast<uint64_t>(member) * 40503u + static_cast<uint64_t>(round)) *
                         0x9E3779B97F4A7C15u;
  const int64_t number = static_cast<int64_t>(mixed >> 40) - (int64_t{1} << 23);
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(number);
  } else {
    return static_cast<T>(number) / static_cast<T>(7 + member);
  }
}

template <typename T>
std::vector<T> values_of(int member, int64_t count, int round) {
  std::vector<T> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    values[static_cast<size_t>(i)] = value_of<T>(member, i, round);
  return values;
}

// In the order of the members, so that a right result has these very bits.
template <typename T>
std::vector<T> sums_of(int members, int64_t count, int round) {
  std::vector<T> sums = values_of<T>(0, count, round);
  for (int member = 1; member < members; ++member) {
    for (int64_t i = 0; i < count; ++i) {
      sums[static_cast<size_t>(i)] += value_of<T>(member, i, round);
    }
  }
  return sums;
}

template <typename T>
bool same_bits(const std::vector<T>& left, const std::vector<T>& right) {
  return left.size() == right.size() &&
         (left.empty() || std::memcmp(left.data(), right.data(), left.size() * sizeof(T)) == 0);
}

}  // namespace millrace::comm
