#include "data/share_source.h"

#include <gmock/gmock.h>

#include <map>
#include <set>

#include "support.h"

namespace millrace::data {
namespace {

using ::testing::HasSubstr;

// Records whose place tells which they are; `classes` 0 tells no labels.
class CountedSource : public RecordSource {
 public:
  CountedSource(uint64_t count, int64_t classes) : count_(count), classes_(classes) {}
  uint64_t count() const override { return count_; }
  Sample read(uint64_t index) const override {
    Sample sample;
    sample.label = static_cast<int64_t>(index);
    return sample;
  }
  RecordPlace place(uint64_t index) const override { return {"set", index, 0}; }
  int64_t classes() const override { return classes_; }
  std::optional<int64_t> label(uint64_t index) const override {
    if (classes_ == 0) return {};
    return static_cast<int64_t>(index) % classes_;
  }

 private:
  uint64_t count_;
  int64_t classes_;
};

std::vector<uint64_t> part(uint64_t count, int64_t classes, double share, uint64_t seed,
                           Split split) {
  const auto source =
      take_share(std::make_unique<CountedSource>(count, classes), share, seed, split);
  std::vector<uint64_t> records;
  for (uint64_t i = 0; i < source->count(); ++i) records.push_back(source->place(i).record);
  return records;
}

TEST(ShareSourceTest, EveryRecordIsInOnePart) {
  for (const int64_t classes : {0, 3}) {
    const auto held = part(100, classes, 0.2, 7, Split::test);
    const auto rest = part(100, classes, 0.2, 7, Split::train);
    std::set<uint64_t> all(held.begin(), held.end());
    all.insert(rest.begin(), rest.end());
    EXPECT_EQ(all.size(), 100u);
    EXPECT_EQ(held.size() + rest.size(), 100u);
    EXPECT_NEAR(static_cast<double>(held.size()), 20, 1);
    EXPECT_TRUE(std::is_sorted(held.begin(), held.end()));
  }
}

TEST(ShareSourceTest, EveryClassGivesItsShare) {
  std::map<uint64_t, int> counts;
  for (const uint64_t record : part(40, 4, 0.3, 1, Split::test)) ++counts[record % 4];
  for (uint64_t label = 0; label < 4; ++label) EXPECT_EQ(counts[label], 3) << label;
}

TEST(ShareSourceTest, TheSeedAloneDecides) {
  EXPECT_EQ(part(100, 3, 0.2, 7, Split::test), part(100, 3, 0.2, 7, Split::test));
  EXPECT_NE(part(100, 3, 0.2, 7, Split::test), part(100, 3, 0.2, 8, Split::test));
}

TEST(ShareSourceTest, NoPartMayBeEmpty) {
  EXPECT_THAT(input_error_of([] { part(3, 3, 0.4, 1, Split::test); }),
              HasSubstr("leaves nothing of 3 images to validate on"));
  EXPECT_EQ(part(6, 3, 0.99, 1, Split::train).size(), 3u);
}

}  // namespace
}  // namespace millrace::data
