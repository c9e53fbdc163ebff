// How well a network that is being trained tells people apart.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/formats/face_pairs.h"
#include "train/engine.h"
#include "train/faces/verification.h"
#include "train/job.h"

namespace millrace::train {

// A set of pairs that is open, and what it is called in figures: its file without ".bin".
struct PairsSet {
  std::string name = {};
  std::shared_ptr<const data::FacePairsFile> file = {};
};

// Throws InputError for what cannot be read, and for two sets of one name.
std::vector<PairsSet> open_pairs(const std::vector<std::filesystem::path>& files);

// Embeds the images of a set, each with its mirror image, and compares the pairs, in every process
// of the job. Nothing if `stop` (may be null) is set before that, in any of them.
std::optional<VerificationReport> verify_set(const TrainJob& job, Engine& engine,
                                             const PairsSet& set, const std::atomic<bool>* stop);

// The sets of a job. Borrows the job; used by one thread.
class Verifier {
 public:
  // Throws InputError for sets that cannot be read, and for a --metric of one that is not there.
  explicit Verifier(const TrainJob& job);

  int64_t pairs() const;
  // The mean over the sets of each metric, then the accuracy of each set if there are several; or
  // nothing, as above.
  std::optional<std::vector<Measured>> measure(Engine& engine, const std::atomic<bool>* stop) const;

 private:
  const TrainJob& job_;
  std::vector<PairsSet> sets_;
};

}  // namespace millrace::train
