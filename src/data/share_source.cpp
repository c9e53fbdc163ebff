#include "data/share_source.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/random.h"

namespace millrace::data {
namespace {

constexpr uint64_t kShareStream = 0x7368617265;  // apart from all other draws of the seed

class PartSource : public RecordSource {
 public:
  PartSource(std::unique_ptr<RecordSource> whole, std::vector<uint64_t> places)
      : whole_(std::move(whole)), places_(std::move(places)) {}

  uint64_t count() const override { return places_.size(); }
  Sample read(uint64_t index) const override { return whole_->read(places_[index]); }
  RecordPlace place(uint64_t index) const override { return whole_->place(places_[index]); }
  std::vector<std::string> class_names() const override { return whole_->class_names(); }
  int64_t classes() const override { return whole_->classes(); }
  std::vector<std::string> passed_over() const override { return whole_->passed_over(); }
  std::optional<int64_t> label(uint64_t index) const override {
    return whole_->label(places_[index]);
  }

 private:
  std::unique_ptr<RecordSource> whole_;
  std::vector<uint64_t> places_;
};

}  // namespace

std::unique_ptr<RecordSource> take_share(std::unique_ptr<RecordSource> whole, double share,
                                         uint64_t seed, Split part) {
  std::map<int64_t, std::vector<uint64_t>> groups;
  for (uint64_t i = 0; i < whole->count(); ++i) groups[whole->label(i).value_or(0)].push_back(i);
  const Random random(seed, kShareStream);
  std::vector<uint64_t> places;
  for (auto& [label, records] : groups) {
    std::stable_sort(records.begin(), records.end(), [&](uint64_t first, uint64_t second) {
      return random.uniform(first) < random.uniform(second);
    });
    auto held = static_cast<size_t>(std::round(share * static_cast<double>(records.size())));
    held = std::min(held, records.size() - 1);
    const auto middle = records.begin() + static_cast<ptrdiff_t>(held);
    if (part == Split::test) {
      places.insert(places.end(), records.begin(), middle);
    } else {
      places.insert(places.end(), middle, records.end());
    }
  }
  if (places.empty()) {
    fail_input("‹valid_share› {} leaves nothing of {} images to {}.", share, whole->count(),
               part == Split::test ? "validate on" : "train on");
  }
  std::sort(places.begin(), places.end());
  return std::make_unique<PartSource>(std::move(whole), std::move(places));
}

}  // namespace millrace::data
