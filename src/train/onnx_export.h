// Trained networks as ONNX files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "models/onnx/exporter.h"
#include "train/job.h"
#include "train/observer.h"

namespace millrace::train {

// What was written.
struct ExportReport {
  size_t nodes = 0;
  int64_t parameters = 0;
  std::string result = {};  // "logits" or "embedding"
};

// Writes the network of a job with its weights (load_weights, or those of a checkpoint) to `file`,
// with the card of the model in its metadata. A face network is written up to its embedding,
// without margin head or classifier. Whatever the job's batch is, the file's is open.
// `settings.result` is filled in. Throws InputError.
ExportReport export_onnx(const TrainJob& job, const std::filesystem::path& file,
                         models::onnx::ExportSettings settings, TrainingObserver& observer);

}  // namespace millrace::train
