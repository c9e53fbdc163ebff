// Metrics of a run for TensorBoard.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/line_file.h"
#include "data/image/image.h"
#include "train/observer.h"

namespace millrace::train {

struct EventScalar {
  std::string tag;
  double value = 0;
};

// One record of an event file: TFRecord around tensorflow.Event in protobuf's wire format. The
// first of a file names the version of the format; `start_record` says that a run begins or goes on
// with a step, so that TensorBoard drops what an earlier run had from there on.
std::string version_record(double time);
std::string start_record(double time, int64_t step);
std::string scalar_record(double time, int64_t step, const std::vector<EventScalar>& scalars);
std::string text_record(double time, int64_t step, std::string_view tag, std::string_view text);
// A PNG file of so many pixels.
std::string image_record(double time, int64_t step, std::string_view tag, const data::Image& image);

// CRC-32C (Castagnoli) of bytes, as TFRecord has it before its masking.
uint32_t crc32c(std::string_view bytes);

// Writes a new event file into a directory when the job starts: the configuration as text, and
// loss, accuracy, learning rate and speed of each step and evaluation, and the samples that an
// evaluation was the furthest off with, as pictures and as a table. Records that cannot be
// written are tried again with the next. Used by one thread.
class EventWriter : public TrainingObserver {
 public:
  EventWriter(std::filesystem::path directory, std::string configuration)
      : directory_(std::move(directory)), configuration_(std::move(configuration)) {}

  void on_start(const JobStart& start) override;
  void on_step(const StepReport& report) override;
  void on_evaluation(const EvaluationReport& report) override;

  // Why records are missing; empty if none are.
  std::string failure() const;

 private:
  std::filesystem::path directory_;
  std::string configuration_;
  std::unique_ptr<LineFile> file_;
};

}  // namespace millrace::train
