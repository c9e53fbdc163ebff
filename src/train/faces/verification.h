// How well embeddings tell people apart: figures over pairs and over a gallery.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace millrace::train {

inline constexpr int kFolds = 10;

// True accepts at a rate of false accepts: pairs, or searches of a gallery. `threshold` is the
// highest similarity that is not accepted. Where there are fewer than 1 / far pairs of different
// people, the rate is that of no false accept at all, and not `resolved`.
struct AcceptRate {
  double far = 0;
  double tar = 0;
  double threshold = 0;
  bool resolved = false;
};

struct VerificationReport {
  int64_t pairs = 0;
  int64_t different = 0;  // pairs of different people
  double accuracy = 0;    // mean over ten folds
  double deviation = 0;   // of the folds' accuracies
  double threshold = 0;   // squared distance below which a pair is taken for one person
  double auc = 0;         // how often a pair of one person is more alike than one of two
  std::vector<AcceptRate> rates;
};

struct IdentificationReport {
  int64_t gallery = 0;  // identities
  int64_t probes = 0;
  double rank1 = 0;  // share of the probes whose nearest gallery image is of their identity
  // TPIR at FPIR: of the probes, how many find their own identity first and more alike than the
  // threshold, where at most that share of them would find another if their own were not there.
  // None if the gallery has one identity.
  std::vector<AcceptRate> rates;
};

// `embeddings` has a row of unit length for each image, pair i in rows 2i and 2i + 1. As
// InsightFace does: folds are runs of pairs, and a fold is judged with the threshold, from 0 to 4
// in steps of 0.01, that is most accurate on the other nine. `rates` are computed for 1e-2, 1e-3,
// 1e-4 and 1e-5. Throws InputError if there are fewer than ten pairs, or none of a kind, or a value
// that is not finite.
VerificationReport verify_pairs(std::span<const float> embeddings, const std::vector<bool>& same);

// The first image of each label is the gallery, the others are probes. Rows of unit length and
// `features` values. `rates` are computed for 1e-1, 1e-2 and 1e-3. Throws InputError if there is no
// probe or a value is not finite.
IdentificationReport identify(std::span<const float> embeddings, std::span<const int32_t> labels,
                              int64_t features);

}  // namespace millrace::train
