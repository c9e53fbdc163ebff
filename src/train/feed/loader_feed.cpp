#include "train/feed/loader_feed.h"

#include "base/error.h"

namespace millrace::train {
namespace {

class LoaderFeed : public Feed {
 public:
  LoaderFeed(std::shared_ptr<const data::RecordSource> source, const data::LoaderOptions& options)
      : samples_(static_cast<int64_t>(source->count())),
        passed_over_(source->passed_over()),
        source_(source),
        loader_(std::move(source), options),
        position_{static_cast<int64_t>(options.start_epoch),
                  static_cast<int64_t>(options.start_position)} {}

  std::optional<FeedBatch> next() override {
    if (!loader_.next(batch_)) return {};
    const auto epoch = static_cast<int64_t>(batch_.epoch);
    position_ = {epoch, static_cast<int64_t>(batch_.next_position)};
    return FeedBatch{batch_.images,
                     batch_.labels,
                     {epoch, static_cast<int64_t>(batch_.position)},
                     batch_.mixing};
  }
  FeedPosition position() const override { return position_; }
  int64_t batches_per_epoch() const override {
    return static_cast<int64_t>(loader_.batches_per_epoch());
  }
  int64_t skipped() const override { return static_cast<int64_t>(loader_.statistics().skipped); }

  std::vector<std::string> skipped_records() const override {
    return loader_.statistics().skipped_records;
  }
  std::vector<std::string> passed_over() const override { return passed_over_; }

  int64_t samples() const override { return samples_; }

  std::string place(int64_t index) const override {
    const data::RecordPlace found = source_->place(static_cast<uint64_t>(index));
    return found.is_file ? found.file : fmt::format("record {} of {}", found.record, found.file);
  }

 private:
  int64_t samples_;
  std::vector<std::string> passed_over_;
  std::shared_ptr<const data::RecordSource> source_;
  data::Loader loader_;
  data::Batch batch_;
  FeedPosition position_;
};

}  // namespace

std::unique_ptr<Feed> make_loader_feed(std::shared_ptr<const data::RecordSource> source,
                                       const data::LoaderOptions& options) {
  return std::make_unique<LoaderFeed>(std::move(source), options);
}

}  // namespace millrace::train
