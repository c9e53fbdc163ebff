// Rows of a slot on their way to or from a plain buffer.
#pragma once

#include <memory>

#include "base/rows.h"
#include "compile/program.h"

namespace millrace {

// Made once for a slot and some of its rows, counted from the slot's own first. The buffer holds
// them as `wire`: the slot's own type, or 16 bits for a slot of float32, rounded on the way out and
// widened on the way in. Runs on the device's thread with its team, and allocates nothing then.
class RowCopy {
 public:
  enum class Direction : uint8_t { into_slot, out_of_slot };

  RowCopy(const Slot& slot, const RowRange& rows, Direction direction, DataType wire);

  // `slot` is where the slot begins. `scratch` holds one float32 row if the type changes.
  void run(std::byte* slot, std::byte* plain, std::byte* scratch = nullptr);

 private:
  void convert(std::byte* floats, std::byte* halves, int64_t count) const;
  void reorder(std::byte* slot, std::byte* plain);

  Direction direction_;
  DataType wire_;
  bool converts_;
  int64_t offset_ = 0;               // of the rows in the slot, bytes
  int64_t pieces_ = 1;               // that are moved one after the other
  int64_t piece_bytes_ = 0;          // in the slot
  int64_t piece_elements_ = 0;       // without padding
  std::shared_ptr<Kernel> reorder_;  // of a piece; null where the slot is plain too
  std::vector<std::byte> workspace_;
  std::vector<std::byte> own_scratch_;  // for a slot whose rows do not lie apart
};

}  // namespace millrace
