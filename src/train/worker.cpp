#include "train/worker.h"

#include <algorithm>

namespace millrace::train {

const compile::Program& Worker::largest() const {
  if (!training) return *evaluation;
  if (!evaluation || training->arena_bytes >= evaluation->arena_bytes) return *training;
  return *evaluation;
}

const compile::Slot* find_result(const compile::Program& program, std::string_view name) {
  const std::string total = std::string(name) + ".total";
  const auto found = std::find_if(
      program.results.begin(), program.results.end(),
      [&](const compile::Slot& slot) { return slot.name == name || slot.name == total; });
  return found == program.results.end() ? nullptr : &*found;
}

RowRange rows_of_slot(const compile::Slot& slot, int64_t samples) {
  if (slot.slice.axis != 0) return {0, samples};
  return {slot.slice.begin, slot.slice.begin + slot.type.shape.at(0)};
}

}  // namespace millrace::train
