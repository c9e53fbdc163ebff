// A set of small numbers as bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace::planner {

// A subset of {0, ..., count - 1}; sets that meet in an operation have the same count. A value.
class NodeSet {
 public:
  NodeSet() = default;
  explicit NodeSet(size_t count) : words_((count + 63) / 64) {}

  bool contains(int node) const { return (words_[node / 64] >> (node % 64) & 1) != 0; }
  void insert(int node) { words_[node / 64] |= uint64_t{1} << (node % 64); }

  NodeSet& operator|=(const NodeSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
    return *this;
  }
  NodeSet& operator-=(const NodeSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] &= ~other.words_[i];
    return *this;
  }
  bool operator==(const NodeSet& other) const = default;
  auto operator<=>(const NodeSet& other) const = default;

  bool is_subset_of(const NodeSet& other) const {
    for (size_t i = 0; i < words_.size(); ++i) {
      if ((words_[i] & ~other.words_[i]) != 0) return false;
    }
    return true;
  }

  int size() const {
    int total = 0;
    for (const uint64_t word : words_) total += std::popcount(word);
    return total;
  }
  bool empty() const { return size() == 0; }

  // Calls `visit(node)` for each member, smallest first.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (size_t i = 0; i < words_.size(); ++i) {
      for (uint64_t rest = words_[i]; rest != 0; rest &= rest - 1) {
        visit(static_cast<int>(i * 64) + std::countr_zero(rest));
      }
    }
  }

 private:
  std::vector<uint64_t> words_;
};

}  // namespace millrace::planner
