// Embeddings of images by a face network.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "train/engine.h"
#include "train/job.h"
#include "train/observer.h"

namespace millrace::train {

// Writes mirror images of images with rows of `width` values.
void mirror_images(std::span<const float> images, int64_t width, std::vector<float>& mirrored);

// Appends the first `rows` sums of two embeddings of `features` values, scaled to unit length.
void append_unit_sums(std::span<const float> first, std::span<const float> second, size_t rows,
                      int64_t features, std::vector<float>& embeddings);

// The job of the network without its classifier, for identities that need not be its classes.
TrainJob embedding_job(TrainJob job);

// The face network of a job with the weights of load_weights or of the newest valid checkpoint; a
// classifier in them is passed over. Throws InputError for a model without embeddings and for
// weights that do not fit. Immovable; used by one thread.
class Embedder {
 public:
  Embedder(const TrainJob& job, TrainingObserver& observer);

  Engine& engine() { return engine_; }
  const TrainJob& job() const { return job_; }
  int64_t batch() const { return job_.options.batch; }
  int64_t features() const;

  // Appends `rows` vectors for the first images of a full batch: that of the image plus that of its
  // mirror image, scaled to unit length.
  void append(std::span<const float> images, size_t rows, std::vector<float>& embeddings);

 private:
  std::vector<float> run(std::span<const float> images);

  TrainJob job_;
  Engine engine_;
  std::vector<float> mirrored_;
};

}  // namespace millrace::train
