// Data sets to train on and to measure on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "train/job.h"

namespace millrace::data {
class RecordSource;
}  // namespace millrace::data

namespace millrace::api {

// How a data set is read.
struct DataOptions {
  int64_t image = 0;  // height and width that pictures are brought to; 0: the model's
  double valid = 0;   // the share that is held back to measure on
  uint64_t seed = 0;  // by which it is chosen
  std::string augment = "auto";
  int workers = 2;  // threads that decode
  bool skip_bad_records = false;
};

// Pictures in memory: count × height × width × channels bytes, and a label for each. Borrowed,
// unless `owner` keeps them.
struct Pictures {
  std::span<const uint8_t> pixels = {};
  int64_t count = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 3;
  std::vector<int64_t> labels = {};
  std::shared_ptr<const void> owner = {};
};

// What is trained or measured on: a data set, or the part of it that is held back, or what is left.
// Plain data; cheap to copy.
struct DataPart {
  DataOptions options;
  std::string source = {};  // FORMAT:PATH or "synthetic"; empty: `records`
  std::shared_ptr<const data::RecordSource> records = {};
  bool held_back = false;
  int64_t classes = 0;  // 0: it does not tell
  std::vector<std::string> class_names = {};
};

// A data set of a file or folder, of pictures in memory, or of one's own records (see RecordSource
// in data/record_source.h, which is the interface for formats of one's own).
class Data {
 public:
  // "folder:pets", "ofrecord:DIR", "recordio:FILE.rec", "idx:DIR", "raw:FILE" or "synthetic".
  explicit Data(const std::string& source, const DataOptions& options = {});
  explicit Data(const Pictures& pictures, const DataOptions& options = {});
  Data(std::shared_ptr<const data::RecordSource> records, const DataOptions& options);

  const DataPart& train() const { return train_; }
  // Nothing if no share is held back.
  const std::optional<DataPart>& valid() const { return valid_; }

  int64_t classes() const { return train_.classes; }
  const std::vector<std::string>& class_names() const { return train_.class_names; }

 private:
  DataPart train_;
  std::optional<DataPart> valid_;
};

// Pictures as records; `labels` may be left out for pictures that are only looked at. Throws
// InputError where sizes do not fit each other.
std::shared_ptr<const data::RecordSource> records_of(const Pictures& pictures);

// Puts a part into a job: what it trains on, or what it is measured on.
void set_training_data(train::TrainJob& job, const DataPart& part);
void set_evaluation_data(train::TrainJob& job, const DataPart& part);

}  // namespace millrace::api
