#include "data/loader.h"

#include <gmock/gmock.h>

#include <new>
#include <set>

#include "base/error.h"
#include "images.h"

namespace millrace::data {
namespace {

using ::testing::HasSubstr;

// Gray 4 × 4 images whose pixels and label are the record's number; some records are bad.
class NumberedSource : public RecordSource {
 public:
  explicit NumberedSource(uint64_t count, std::set<uint64_t> bad = {})
      : count_(count), bad_(std::move(bad)) {}
  uint64_t count() const override { return count_; }
  Sample read(uint64_t index) const override {
    if (bad_.contains(index)) fail_data("it was made bad");
    Sample sample = sample_of(smooth_image(4, 4, 1, static_cast<double>(index)), 0);
    sample.label = static_cast<int64_t>(index);
    return sample;
  }
  RecordPlace place(uint64_t index) const override { return {"numbers", index, index * 16}; }

 private:
  uint64_t count_;
  std::set<uint64_t> bad_;
};

LoaderOptions options_of(int64_t batch) {
  LoaderOptions options;
  options.transform = small_training(4, 1);
  options.batch = batch;
  options.seed = 5;
  options.epochs = 2;
  return options;
}

std::vector<Batch> all_batches(std::shared_ptr<const RecordSource> source,
                               const LoaderOptions& options) {
  Loader loader(std::move(source), options);
  std::vector<Batch> batches;
  Batch batch;
  while (loader.next(batch)) batches.push_back(batch);
  return batches;
}

void expect_same(const std::vector<Batch>& a, const std::vector<Batch>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].labels, b[i].labels);
    EXPECT_EQ(a[i].images, b[i].images);
    EXPECT_EQ(a[i].epoch, b[i].epoch);
    EXPECT_EQ(a[i].position, b[i].position);
    EXPECT_EQ(a[i].skipped, b[i].skipped);
  }
}

TEST(Loader, ASetThatDamageMakesTooSmallIsToldByTheDamage) {
  for (const BadRecords policy : {BadRecords::fail, BadRecords::skip}) {
    LoaderOptions options = options_of(4);
    options.bad_records = policy;
    try {
      Loader(std::make_shared<NumberedSource>(3, std::set<uint64_t>{2}), options);
      ADD_FAILURE();
    } catch (const InputError& error) {
      EXPECT_STREQ(error.what(), "Record 2 at byte 32 of 'numbers' is bad: it was made bad.");
    }
  }
}

TEST(Loader, SameBitsForAnyNumberOfWorkersAndPrefetch) {
  const auto source = std::make_shared<NumberedSource>(1003, std::set<uint64_t>{3, 4, 5, 900});
  LoaderOptions options = options_of(10);
  options.bad_records = BadRecords::skip;
  options.workers = 1;
  options.prefetch = 1;
  const auto expected = all_batches(source, options);
  EXPECT_EQ(expected.size(), 200u);
  for (const auto& [workers, prefetch] : {std::pair(2, 1), {3, 7}, {8, 2}}) {
    options.workers = workers;
    options.prefetch = prefetch;
    expect_same(all_batches(source, options), expected);
  }
  options.seed = 6;
  EXPECT_NE(all_batches(source, options)[0].labels, expected[0].labels);
}

TEST(Loader, StartsAnywhere) {
  const auto source = std::make_shared<NumberedSource>(57);
  LoaderOptions options = options_of(5);
  const auto expected = all_batches(source, options);
  for (size_t stop = 0; stop < expected.size(); ++stop) {
    options.start_epoch = expected[stop].epoch;
    options.start_position = expected[stop].next_position;
    const auto rest = all_batches(source, options);
    expect_same(rest, {expected.begin() + static_cast<std::ptrdiff_t>(stop) + 1, expected.end()});
  }
}

// What a loader of the rows must give, cut out of what a loader of the whole batch gives.
std::vector<Batch> cut(std::vector<Batch> batches, const std::vector<RowRange>& rows) {
  constexpr size_t kPixels = 16;
  for (Batch& batch : batches) {
    const Batch whole = batch;
    batch.labels.clear();
    batch.images.clear();
    for (const RowRange& range : rows) {
      for (auto row = static_cast<size_t>(range.begin); row < static_cast<size_t>(range.end);
           ++row) {
        batch.labels.push_back(whole.labels[row]);
        for (size_t i = 0; i < kPixels; ++i) {
          batch.images.push_back(whole.images[row * kPixels + i]);
        }
      }
    }
  }
  return batches;
}

TEST(Loader, SomeRowsAreThoseOfTheWholeBatchBitForBit) {
  const auto source = std::make_shared<NumberedSource>(100, std::set<uint64_t>{3, 4, 5, 61});
  LoaderOptions options = options_of(7);
  options.bad_records = BadRecords::skip;
  for (const LastBatch last_batch : {LastBatch::drop, LastBatch::pad}) {
    options.last_batch = last_batch;
    options.rows = {};
    const auto whole = all_batches(source, options);
    for (const std::vector<RowRange>& rows : std::vector<std::vector<RowRange>>{
             {{0, 2}}, {{2, 5}}, {{5, 7}}, {{6, 7}, {0, 3}}, {{3, 3}}, {{0, 7}}}) {
      options.rows = rows;
      auto part = all_batches(source, options);
      for (size_t i = 0; i < part.size(); ++i) part[i].skipped = whole[i].skipped;
      expect_same(part, cut(whole, rows));
      EXPECT_EQ(part.back().next_position, whole.back().next_position);
    }
  }
}

TEST(Loader, SomeRowsDecodeNoOthers) {
  const auto source = std::make_shared<NumberedSource>(20, std::set<uint64_t>{0, 5, 10, 15});
  LoaderOptions options = options_of(5);
  options.shuffle = false;
  options.rows = {{1, 5}};
  EXPECT_EQ(all_batches(source, options).size(), 8u);
  options.rows = {{0, 1}};
  EXPECT_THROW(all_batches(source, options), InputError);
  options.rows = {{4, 6}};
  EXPECT_THROW(Loader(source, options), InputError);
}

TEST(Loader, LastBatchIsDroppedOrPadded) {
  const auto source = std::make_shared<NumberedSource>(23);
  LoaderOptions options = options_of(10);
  options.shuffle = false;
  options.epochs = 1;
  EXPECT_EQ(all_batches(source, options).size(), 2u);
  options.last_batch = LastBatch::pad;
  const auto padded = all_batches(source, options);
  ASSERT_EQ(padded.size(), 3u);
  EXPECT_EQ(padded[2].valid, 3);
  EXPECT_EQ(padded[2].labels, (std::vector<int32_t>{20, 21, 22, -1, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(padded[2].images.back(), 0.0f);
}

TEST(Loader, EpochsAreShuffledDifferentlyAndEachIsComplete) {
  const auto source = std::make_shared<NumberedSource>(30);
  const auto batches = all_batches(source, options_of(10));
  std::vector<std::vector<int32_t>> epochs(2);
  for (const Batch& batch : batches) {
    epochs.at(batch.epoch)
        .insert(epochs[batch.epoch].end(), batch.labels.begin(), batch.labels.end());
  }
  EXPECT_NE(epochs[0], epochs[1]);
  for (const auto& labels : epochs) {
    EXPECT_EQ(std::set<int32_t>(labels.begin(), labels.end()).size(), 30u);
  }
}

TEST(Loader, FailsNamingFileRecordAndOffset) {
  const auto source = std::make_shared<NumberedSource>(20, std::set<uint64_t>{7, 8});
  LoaderOptions options = options_of(5);
  options.shuffle = false;
  Loader loader(source, options);
  Batch batch;
  EXPECT_TRUE(loader.next(batch));
  try {
    loader.next(batch);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("Record 7 at byte 112 of 'numbers' is bad: it was made bad"));
    EXPECT_THAT(error.what(), HasSubstr("on_bad_record skip"));
  }
}

TEST(Loader, SkippingReplacesInTrainingAndLeavesOutInEvaluation) {
  const auto source = std::make_shared<NumberedSource>(20, std::set<uint64_t>{7, 8, 19});
  LoaderOptions options = options_of(5);
  options.shuffle = false;
  options.epochs = 1;
  options.bad_records = BadRecords::skip;
  Loader loader(source, options);
  Batch batch;
  std::vector<int32_t> labels;
  while (loader.next(batch)) labels.insert(labels.end(), batch.labels.begin(), batch.labels.end());
  EXPECT_EQ(labels[7], 9);
  EXPECT_EQ(labels[8], 9);
  EXPECT_EQ(labels[19], 0);
  EXPECT_EQ(loader.statistics().skipped, 4u);
  EXPECT_THAT(loader.statistics().skipped_records[0], HasSubstr("Record 7"));
  options.last_batch = LastBatch::pad;
  const auto evaluation = all_batches(source, options);
  EXPECT_EQ(evaluation[1].labels, (std::vector<int32_t>{5, 6, -1, -1, 9}));
  EXPECT_EQ(evaluation[1].valid, 3);
}

TEST(Loader, LabelsAreCheckedAndShifted) {
  const auto source = std::make_shared<NumberedSource>(10);
  LoaderOptions options = options_of(5);
  options.shuffle = false;
  options.classes = 9;
  EXPECT_THROW(all_batches(source, options), InputError);
  options.classes = 10;
  EXPECT_EQ(all_batches(source, options)[0].labels[1], 1);
  options.label_offset = 1;
  options.bad_records = BadRecords::skip;
  EXPECT_EQ(all_batches(source, options)[0].labels, (std::vector<int32_t>{0, 0, 1, 2, 3}));
}

TEST(Loader, RefusesWhatMakesNoBatch) {
  const auto source = std::make_shared<NumberedSource>(10);
  EXPECT_THROW(Loader(source, options_of(11)), InputError);
  EXPECT_THROW(Loader(std::make_shared<NumberedSource>(0), options_of(1)), InputError);
  EXPECT_THROW(Loader(source, options_of(0)), InputError);
  LoaderOptions all_bad = options_of(5);
  all_bad.bad_records = BadRecords::skip;
  EXPECT_THROW(
      all_batches(std::make_shared<NumberedSource>(5, std::set<uint64_t>{0, 1, 2, 3, 4}), all_bad),
      InputError);
}

TEST(Loader, StopsWithBatchesInFlight) {
  const auto source = std::make_shared<NumberedSource>(1000);
  for (int i = 0; i < 50; ++i) {
    LoaderOptions options = options_of(100);
    options.epochs = 0;
    options.workers = 3;
    Loader loader(source, options);
    Batch batch;
    if (i % 2 == 0) {
      EXPECT_TRUE(loader.next(batch));
    }
  }
}

// As if memory ran out while a record is decoded.
class HungrySource : public NumberedSource {
 public:
  using NumberedSource::NumberedSource;
  Sample read(uint64_t index) const override {
    if (index == 7) throw std::bad_alloc();
    return NumberedSource::read(index);
  }
};

std::string failure_of(std::shared_ptr<const RecordSource> source, const LoaderOptions& options) {
  try {
    all_batches(std::move(source), options);
    return "";
  } catch (const JobError& error) {
    return error.what();
  }
}

TEST(Loader, TellsWhenMemoryRunsOutInAWorker) {
  EXPECT_THAT(failure_of(std::make_shared<HungrySource>(20), options_of(5)),
              HasSubstr("not enough memory for the loader"));
#ifndef __SANITIZE_ADDRESS__  // ends the process where new would throw
  LoaderOptions endless = options_of(1 << 16);
  endless.transform = small_training(1 << 16, 3);  // 3 PiB a batch
  EXPECT_THAT(failure_of(std::make_shared<NumberedSource>(1 << 16), endless),
              HasSubstr("not enough memory for the loader"));
#endif
}

}  // namespace
}  // namespace millrace::data
