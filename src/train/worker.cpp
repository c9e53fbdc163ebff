#include "train/worker.h"

namespace millrace::train {

const compile::Program& Worker::largest() const {
  if (!training) return *evaluation;
  if (!evaluation || training->arena_bytes >= evaluation->arena_bytes) return *training;
  return *evaluation;
}

RowRange rows_of_slot(const compile::Slot& slot, int64_t samples) {
  if (slot.slice.axis != 0) return {0, samples};
  return {slot.slice.begin, slot.slice.begin + slot.type.shape.at(0)};
}

}  // namespace millrace::train
