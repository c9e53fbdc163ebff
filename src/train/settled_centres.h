// The class centres of a checkpoint as they are used elsewhere.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "kernels/support/update_rules.h"
#include "train/centre_shards.h"
#include "train/checkpoint.h"

namespace millrace::train {

// A checkpoint of a head that is lazy (graph/margin_head.h) has centres that wait to be brought up
// to date; here they are, with the bits that JobState::settle would give them. Borrows the reader.
class SettledCentres {
 public:
  // Throws InputError if the checkpoint does not say what happened to its centres.
  SettledCentres(const std::filesystem::path& checkpoint, const Manifest& manifest,
                 const ShardReader& reader);

  // The centres from `first` on, as they are stored.
  void read(int64_t first, std::span<std::byte> bytes) const;

 private:
  const ShardReader& reader_;
  std::vector<size_t> tensors_;  // centres, states, updates up to which they are current
  kernels::UpdateRule rule_;
  std::vector<float> rates_;  // none: nothing waits
};

}  // namespace millrace::train
