// How the elements of a tensor lie in memory.
//
// A layout is written as oneDNN writes its format tags: one letter per axis, outermost first;
// a capital letter is an axis that is also blocked, and the blocks follow: "abcd" is plain
// row-major, "acdb" channels-last, "aBcd16b" channels in blocks of sixteen. The empty tag means
// plain row-major of any rank. A value type; compares by meaning of its tag.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/types.h"

namespace millrace::graph {

class Layout {
 public:
  struct Block {
    int axis;
    int64_t size;
    bool operator==(const Block&) const = default;
  };

  Layout() = default;
  explicit Layout(std::string_view tag);
  Layout(std::vector<int> outer_order, std::vector<Block> inner_blocks);

  bool is_plain() const { return outer_.empty(); }
  std::string tag() const;

  // Axes from outermost to innermost; empty for plain.
  const std::vector<int>& outer_order() const { return outer_; }
  // Blocks from outermost to innermost.
  const std::vector<Block>& inner_blocks() const { return inner_; }

  // Elements that storage must hold, with blocked axes rounded up to whole blocks.
  int64_t physical_elements(const Shape& shape) const;

  // Position of the element at `index` (one entry per axis).
  int64_t offset(const Shape& shape, std::span<const int64_t> index) const;

  // The block size if this is "channels (axis 1) in blocks, everything else in order", 1 if
  // plain, 0 for any other layout: what kernels that work channel by channel need to know.
  int64_t channel_block() const;

  bool operator==(const Layout&) const = default;

 private:
  std::vector<int> outer_;
  std::vector<Block> inner_;
};

}  // namespace millrace::graph
