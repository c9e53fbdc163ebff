// Embeddings of images, and the measurements that need them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compile/memory_breakdown.h"
#include "train/faces/verification.h"
#include "train/job.h"
#include "train/observer.h"

namespace millrace::train {

// What to measure; one of the two at least.
struct FaceEvaluationRequest {
  std::vector<std::filesystem::path> pairs = {};  // InsightFace's verification sets
  std::string identification = {};                // FORMAT:PATH, labels are identities
};

struct FaceEvaluationResult {
  std::vector<std::pair<std::string, VerificationReport>> verification;  // by the names of the sets
  std::optional<IdentificationReport> identification;
  int64_t images = 0;
  double seconds = 0;
  int64_t arena_bytes = 0;
  compile::MemoryBreakdown breakdown;
};

// Measures the face network of a job with the weights of load_weights or of the newest valid
// checkpoint; a classifier in them is passed over. The embedding of an image is that of the image
// plus that of its mirror image, scaled to unit length. Throws InputError for a model without
// embeddings, weights that do not fit, or a set that cannot be read, and JobError if stopped.
FaceEvaluationResult evaluate_faces(const TrainJob& job, const FaceEvaluationRequest& request,
                                    TrainingObserver& observer);

}  // namespace millrace::train
