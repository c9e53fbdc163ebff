#include "runtime/row_copy.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "base/parallel.h"
#include "kernels/support/conversion.h"

namespace millrace {
namespace {

constexpr int64_t kRowCopyGrain = int64_t{1} << 18;  // bytes

// Whether rows lie one behind the other, so that some of them are a tensor of their own.
bool is_row_by_row(const Layout& layout) {
  const auto& blocks = layout.inner_blocks();
  return layout.is_plain() ||
         (layout.outer_order().front() == 0 &&
          std::none_of(blocks.begin(), blocks.end(),
                       [](const Layout::Block& block) { return block.axis == 0; }));
}

}  // namespace

RowCopy::RowCopy(const Slot& slot, const RowRange& rows, Direction direction, DataType wire)
    : direction_(direction), wire_(wire), converts_(wire != slot.type.dtype) {
  const int64_t all = slot.type.shape.at(0);
  const bool whole = rows == RowRange{0, all};
  const bool row_by_row = is_row_by_row(slot.layout);
  if (rows.begin < 0 || rows.end > all || (!whole && !row_by_row)) {
    throw std::logic_error("rows of '" + slot.name + "' cannot be taken apart");
  }
  if (converts_ && (slot.type.dtype != DataType::f32 || size_of(wire) != 2)) {
    throw std::logic_error("'" + slot.name + "' cannot travel as " + std::string(name_of(wire)));
  }
  TensorSpec spec = {slot.type, slot.layout};
  offset_ = whole ? 0 : spec.bytes() / all * rows.begin;
  if (converts_ && row_by_row && !slot.layout.is_plain()) pieces_ = rows.end - rows.begin;
  spec.type.shape[0] = (rows.end - rows.begin) / pieces_;
  piece_bytes_ = spec.bytes();
  piece_elements_ = spec.elements();
  if (slot.layout.is_plain()) return;
  const TensorSpec plain = {spec.type, Layout()};
  const Operator op = {"reorder", slot.name + "/rows", {}, {}, {}, Phase::forward};
  const KernelOptions options;
  const bool out = direction == Direction::out_of_slot;
  reorder_ = make_kernel({op, {out ? spec : plain}, {out ? plain : spec}, options});
  workspace_.resize(reorder_->workspace_bytes());
  if (converts_ && !row_by_row) own_scratch_.resize(static_cast<size_t>(plain.bytes()));
}

void RowCopy::convert(std::byte* floats, std::byte* halves, int64_t count) const {
  auto* wide = reinterpret_cast<float*>(floats);
  if (direction_ == Direction::out_of_slot) {
    narrow(wire_, wide, count, halves);
  } else {
    widen(wire_, halves, count, wide);
  }
}

void RowCopy::reorder(std::byte* slot, std::byte* plain) {
  if (direction_ == Direction::into_slot) std::swap(slot, plain);
  reorder_->run({{&slot, 1}, {&plain, 1}, workspace_.data(), nullptr});
}

void RowCopy::run(std::byte* slot, std::byte* plain, std::byte* scratch) {
  slot += offset_;
  const bool out = direction_ == Direction::out_of_slot;
  if (!converts_ && reorder_ != nullptr) {
    reorder(slot, plain);
  } else if (!converts_) {
    std::byte* source = out ? slot : plain;
    std::byte* target = out ? plain : slot;
    parallel_ranges(piece_bytes_, kRowCopyGrain, [=](int, int64_t begin, int64_t end) {
      std::memcpy(target + begin, source + begin, static_cast<size_t>(end - begin));
    });
  } else if (reorder_ == nullptr) {
    convert(slot, plain, piece_elements_);
  } else {
    if (!own_scratch_.empty()) scratch = own_scratch_.data();
    for (int64_t i = 0; i < pieces_; ++i, slot += piece_bytes_) {
      std::byte* halves = plain + i * piece_elements_ * size_of(wire_);
      if (out) reorder(slot, scratch);
      convert(scratch, halves, piece_elements_);
      if (!out) reorder(slot, scratch);
    }
  }
}

}  // namespace millrace
