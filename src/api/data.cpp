#include "api/data.h"

#include <algorithm>

#include "base/error.h"
#include "data/record_source.h"
#include "data/share_source.h"

namespace millrace::api {
namespace {

constexpr std::string_view kSynthetic = "synthetic";
constexpr int64_t kMostClasses = int64_t{1} << 30;

class PictureSource : public data::RecordSource {
 public:
  explicit PictureSource(const Pictures& pictures) : pictures_(pictures) {
    size_ = static_cast<size_t>(pictures.height * pictures.width * pictures.channels);
  }

  uint64_t count() const override { return static_cast<uint64_t>(pictures_.count); }

  data::Sample read(uint64_t index) const override {
    data::Sample sample;
    sample.bytes = std::as_bytes(pictures_.pixels.subspan(index * size_, size_));
    sample.height = static_cast<int>(pictures_.height);
    sample.width = static_cast<int>(pictures_.width);
    sample.channels = static_cast<int>(pictures_.channels);
    sample.label = label(index).value_or(0);
    return sample;
  }

  data::RecordPlace place(uint64_t index) const override {
    return {"pictures in memory", index, 0};
  }

  int64_t classes() const override {
    const auto& labels = pictures_.labels;
    return labels.empty() ? 0 : *std::max_element(labels.begin(), labels.end()) + 1;
  }

  std::optional<int64_t> label(uint64_t index) const override {
    if (pictures_.labels.empty()) return {};
    return pictures_.labels[index];
  }

 private:
  Pictures pictures_;
  size_t size_ = 0;
};

// Borrows records that are shared, where something wants to own them.
class BorrowedSource : public data::RecordSource {
 public:
  explicit BorrowedSource(std::shared_ptr<const data::RecordSource> records)
      : records_(std::move(records)) {}

  uint64_t count() const override { return records_->count(); }
  data::Sample read(uint64_t index) const override { return records_->read(index); }
  data::RecordPlace place(uint64_t index) const override { return records_->place(index); }
  std::vector<std::string> class_names() const override { return records_->class_names(); }
  int64_t classes() const override { return records_->classes(); }
  std::optional<int64_t> label(uint64_t index) const override { return records_->label(index); }

 private:
  std::shared_ptr<const data::RecordSource> records_;
};

void check_options(const DataOptions& options) {
  if (!(options.valid >= 0) || options.valid >= 1) {
    fail_input("The share that is held back is {}; give one from 0 to below 1.", options.valid);
  }
  if (options.image < 0) fail_input("The size of images is {}; give 1 or more.", options.image);
}

void set_reading(train::TrainJob& job, const DataPart& part) {
  job.data.augment = part.options.augment;
  job.data.workers = part.options.workers;
  job.data.skip_bad_records = part.options.skip_bad_records;
}

}  // namespace

std::shared_ptr<const data::RecordSource> records_of(const Pictures& pictures) {
  constexpr int64_t kMostPixels = int64_t{1} << 30;
  const bool fits = pictures.count > 0 && pictures.height > 0 && pictures.width > 0 &&
                    pictures.height < kMostPixels / pictures.width &&
                    (pictures.channels == 1 || pictures.channels == 3);
  if (!fits) {
    fail_input("Pictures must be count × height × width × 1 or 3 bytes, not {}×{}×{}×{}.",
               pictures.count, pictures.height, pictures.width, pictures.channels);
  }
  const int64_t one = pictures.height * pictures.width * pictures.channels;
  if (static_cast<int64_t>(pictures.pixels.size()) / one != pictures.count ||
      static_cast<int64_t>(pictures.pixels.size()) % one != 0) {
    fail_input("{} pictures of {} bytes need {} bytes, not {}.", pictures.count, one,
               pictures.count * one, pictures.pixels.size());
  }
  const auto& labels = pictures.labels;
  if (!labels.empty() && static_cast<int64_t>(labels.size()) != pictures.count) {
    fail_input("There are {} pictures and {} labels.", pictures.count, labels.size());
  }
  for (const int64_t label : labels) {
    if (label < 0) fail_input("Labels count from 0; one of them is negative.");
    if (label >= kMostClasses) fail_input("The label {} is too large.", label);
  }
  return std::make_shared<PictureSource>(pictures);
}

Data::Data(const std::string& source, const DataOptions& options) {
  check_options(options);
  train_.options = options;
  train_.source = source;
  if (source != kSynthetic) {
    data::parse_data_specification(source);
    data::DataClasses classes = data::classes_of(source, data::Split::train);
    train_.classes = classes.count;
    train_.class_names = std::move(classes.names);
  } else if (options.valid > 0) {
    fail_input("Synthetic images have no share to hold back.");
  }
  if (options.valid == 0) return;
  valid_ = train_;
  valid_->held_back = true;
}

Data::Data(const Pictures& pictures, const DataOptions& options)
    : Data(records_of(pictures), options) {}

Data::Data(std::shared_ptr<const data::RecordSource> records, const DataOptions& options) {
  check_options(options);
  train_.options = options;
  train_.classes = records->classes();
  train_.class_names = records->class_names();
  train_.records = records;
  if (options.valid == 0) return;
  const auto part = [&](data::Split split) {
    return data::take_share(std::make_unique<BorrowedSource>(records), options.valid, options.seed,
                            split);
  };
  valid_ = train_;
  valid_->records = part(data::Split::test);
  valid_->held_back = true;
  train_.records = part(data::Split::train);
}

void set_training_data(train::TrainJob& job, const DataPart& part) {
  set_reading(job, part);
  if (part.held_back) fail_input("What is held back to measure on cannot be trained on.");
  if (part.source.empty()) return;
  job.data.source = part.source;
  job.data.valid_share = part.options.valid;
  if (part.options.valid > 0) job.seed = part.options.seed;
}

void set_evaluation_data(train::TrainJob& job, const DataPart& part) {
  set_reading(job, part);
  if (part.source.empty()) return;
  job.evaluation_data = part.source;
  job.data.valid_share = part.held_back ? part.options.valid : 0;
  if (part.held_back) job.seed = part.options.seed;
}

}  // namespace millrace::api
