#include <algorithm>

#include "base/error.h"
#include "train/feed/feed.h"

namespace millrace::train {
namespace {

class RowFeed : public Feed {
 public:
  RowFeed(std::unique_ptr<Feed> whole, const BatchShape& shape)
      : whole_(std::move(whole)),
        batch_(shape.batch),
        image_(shape.channels * shape.height * shape.width),
        rows_(rows_of(shape.rows, shape.batch)),
        images_(rows_.size() * static_cast<size_t>(image_)),
        labels_(rows_.size()) {}

  std::optional<FeedBatch> next() override {
    const std::optional<FeedBatch> whole = whole_->next();
    if (!whole) return {};
    if (static_cast<int64_t>(whole->labels.size()) != batch_ ||
        static_cast<int64_t>(whole->images.size()) != batch_ * image_) {
      fail_input("The feed gives {} labels and {} values where a batch has {} and {}.",
                 whole->labels.size(), whole->images.size(), batch_, batch_ * image_);
    }
    for (size_t row = 0; row < rows_.size(); ++row) {
      std::copy_n(whole->images.begin() + rows_[row] * image_, image_,
                  images_.begin() + static_cast<int64_t>(row) * image_);
      labels_[row] = whole->labels[static_cast<size_t>(rows_[row])];
    }
    return FeedBatch{images_, labels_, whole->position};
  }
  FeedPosition position() const override { return whole_->position(); }
  bool constant() const override { return whole_->constant(); }
  int64_t batches_per_epoch() const override { return whole_->batches_per_epoch(); }
  int64_t samples() const override { return whole_->samples(); }
  int64_t skipped() const override { return whole_->skipped(); }
  std::vector<std::string> passed_over() const override { return whole_->passed_over(); }
  std::string place(int64_t index) const override { return whole_->place(index); }

 private:
  std::unique_ptr<Feed> whole_;
  int64_t batch_;
  int64_t image_;  // values
  std::vector<int64_t> rows_;
  std::vector<float> images_;
  std::vector<int32_t> labels_;
};

}  // namespace

std::unique_ptr<Feed> make_row_feed(std::unique_ptr<Feed> whole, const BatchShape& shape) {
  if (shape.rows.empty()) return whole;
  return std::make_unique<RowFeed>(std::move(whole), shape);
}

}  // namespace millrace::train
