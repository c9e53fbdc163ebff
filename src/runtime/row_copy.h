// Rows of a slot on their way to or from a plain buffer.
#pragma once

#include <memory>

#include "base/rows.h"
#include "compile/program.h"

namespace millrace {

// Made once for a slot and some of its rows, counted from the slot's own first. Runs on the
// device's thread with its team, and allocates nothing then.
class RowCopy {
 public:
  enum class Direction : uint8_t { into_slot, out_of_slot };

  RowCopy(const Slot& slot, const RowRange& rows, Direction direction);

  // `slot` is where the slot begins.
  void run(std::byte* slot, std::byte* plain);

 private:
  Direction direction_;
  int64_t offset_ = 0;  // of the rows in the slot, bytes
  int64_t bytes_ = 0;
  std::shared_ptr<Kernel> reorder_;  // null where the slot is plain too
  std::vector<std::byte> workspace_;
};

}  // namespace millrace
