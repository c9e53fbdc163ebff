#include "graph/layout.h"

#include <array>
#include <cassert>
#include <cctype>
#include <numeric>

namespace millrace::graph {
namespace {

constexpr size_t kMaxRank = 8;

std::vector<int> canonical(std::vector<int> outer, const std::vector<Layout::Block>& inner) {
  if (!inner.empty()) return outer;
  std::vector<int> sorted(outer.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  return outer == sorted ? std::vector<int>() : outer;
}

}  // namespace

Layout::Layout(std::string_view tag) {
  size_t i = 0;
  for (; i < tag.size() && std::isalpha(static_cast<unsigned char>(tag[i])); ++i) {
    outer_.push_back(std::tolower(static_cast<unsigned char>(tag[i])) - 'a');
  }
  while (i < tag.size()) {
    int64_t size = 0;
    for (; i < tag.size() && std::isdigit(static_cast<unsigned char>(tag[i])); ++i) {
      size = size * 10 + (tag[i] - '0');
    }
    assert(i < tag.size() && size > 0);
    inner_.push_back({tag[i++] - 'a', size});
  }
  outer_ = canonical(outer_, inner_);
}

Layout::Layout(std::vector<int> outer_order, std::vector<Block> inner_blocks)
    : outer_(canonical(std::move(outer_order), inner_blocks)), inner_(std::move(inner_blocks)) {}

std::string Layout::tag() const {
  std::string text;
  for (int axis : outer_) {
    bool blocked = false;
    for (const Block& block : inner_) blocked |= block.axis == axis;
    text += static_cast<char>((blocked ? 'A' : 'a') + axis);
  }
  for (const Block& block : inner_) {
    text += std::to_string(block.size) + static_cast<char>('a' + block.axis);
  }
  return text;
}

int64_t Layout::physical_elements(const Shape& shape) const {
  int64_t count = 1;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    int64_t multiple = 1;
    for (const Block& block : inner_) {
      if (block.axis == static_cast<int>(axis)) multiple *= block.size;
    }
    count *= (shape[axis] + multiple - 1) / multiple * multiple;
  }
  return count;
}

int64_t Layout::offset(const Shape& shape, std::span<const int64_t> index) const {
  if (is_plain()) {
    int64_t position = 0;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      position = position * shape[axis] + index[axis];
    }
    return position;
  }
  assert(shape.size() <= kMaxRank);
  std::array<int64_t, kMaxRank> rest = {};
  std::array<int64_t, kMaxRank> extent = {};
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    rest[axis] = index[axis];
    extent[axis] = shape[axis];
  }
  int64_t position = 0;
  int64_t stride = 1;
  for (auto block = inner_.rbegin(); block != inner_.rend(); ++block) {
    const auto axis = static_cast<size_t>(block->axis);
    position += rest[axis] % block->size * stride;
    rest[axis] /= block->size;
    extent[axis] = (extent[axis] + block->size - 1) / block->size;
    stride *= block->size;
  }
  for (auto order = outer_.rbegin(); order != outer_.rend(); ++order) {
    const auto axis = static_cast<size_t>(*order);
    position += rest[axis] * stride;
    stride *= extent[axis];
  }
  return position;
}

int64_t Layout::channel_block() const {
  if (is_plain()) return 1;
  if (inner_.size() != 1 || inner_[0].axis != 1) return 0;
  for (size_t i = 0; i < outer_.size(); ++i) {
    if (outer_[i] != static_cast<int>(i)) return 0;
  }
  return inner_[0].size;
}

}  // namespace millrace::graph
