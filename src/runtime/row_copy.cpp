#include "runtime/row_copy.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "base/parallel.h"

namespace millrace {
namespace {

constexpr int64_t kGrain = int64_t{1} << 18;  // bytes

// Whether rows lie one behind the other, so that some of them are a tensor of their own.
bool is_row_by_row(const Layout& layout) {
  const auto& blocks = layout.inner_blocks();
  return layout.is_plain() ||
         (layout.outer_order().front() == 0 &&
          std::none_of(blocks.begin(), blocks.end(),
                       [](const Layout::Block& block) { return block.axis == 0; }));
}

}  // namespace

RowCopy::RowCopy(const Slot& slot, const RowRange& rows, Direction direction)
    : direction_(direction) {
  const int64_t all = slot.type.shape.at(0);
  const bool whole = rows == RowRange{0, all};
  if (rows.begin < 0 || rows.end > all || (!whole && !is_row_by_row(slot.layout))) {
    throw std::logic_error("rows of '" + slot.name + "' cannot be taken apart");
  }
  TensorSpec spec = {slot.type, slot.layout};
  offset_ = whole ? 0 : spec.bytes() / all * rows.begin;
  spec.type.shape[0] = rows.end - rows.begin;
  const TensorSpec plain = {spec.type, Layout()};
  bytes_ = plain.bytes();
  if (slot.layout.is_plain()) return;
  const Operator op = {"reorder", slot.name + "/rows", {}, {}, {}, Phase::forward};
  const KernelOptions options;
  const bool out = direction == Direction::out_of_slot;
  reorder_ = make_kernel({op, {out ? spec : plain}, {out ? plain : spec}, options});
  workspace_.resize(reorder_->workspace_bytes());
}

void RowCopy::run(std::byte* slot, std::byte* plain) {
  std::byte* source = slot + offset_;
  std::byte* target = plain;
  if (direction_ == Direction::into_slot) std::swap(source, target);
  if (reorder_ != nullptr) {
    reorder_->run({{&source, 1}, {&target, 1}, workspace_.data(), nullptr});
    return;
  }
  parallel_ranges(bytes_, kGrain, [=](int, int64_t begin, int64_t end) {
    std::memcpy(target + begin, source + begin, static_cast<size_t>(end - begin));
  });
}

}  // namespace millrace
