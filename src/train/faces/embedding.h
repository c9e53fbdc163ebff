// Embeddings of images, and the measurements that need them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "compile/memory_breakdown.h"
#include "train/faces/verification.h"
#include "train/job.h"
#include "train/observer.h"

namespace millrace {

// What to measure; one of the two at least.
struct FaceEvaluationRequest {
  std::filesystem::path pairs = {};  // an InsightFace verification set
  std::string identification = {};   // FORMAT:PATH, labels are identities
};

struct FaceEvaluationResult {
  std::optional<VerificationReport> verification;
  std::optional<IdentificationReport> identification;
  int64_t images = 0;
  double seconds = 0;
  int64_t arena_bytes = 0;
  MemoryBreakdown breakdown;
};

// Measures the face network of a job with the weights of load_weights or of the newest valid
// checkpoint; a classifier in them is passed over. The embedding of an image is that of the image
// plus that of its mirror image, scaled to unit length. Throws InputError for a model without
// embeddings, weights that do not fit, or a set that cannot be read, and JobError if stopped.
FaceEvaluationResult evaluate_faces(const TrainJob& job, const FaceEvaluationRequest& request,
                                    TrainingObserver& observer);

}  // namespace millrace
