#include "train/confusion.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace::train {
namespace {

std::string name_at(const std::vector<std::string>& names, int64_t label) {
  const auto place = static_cast<size_t>(label);
  return place < names.size() ? names[place] : std::to_string(label);
}

}  // namespace

Confusion::Confusion(const KeptLogits& kept, int64_t classes)
    : classes_(classes), counts_(static_cast<size_t>(classes * classes), 0) {
  for (size_t i = 0; i < kept.labels.size(); ++i) {
    const auto row = kept.logits.begin() + static_cast<ptrdiff_t>(i) * classes;
    const int64_t told = std::max_element(row, row + classes) - row;
    ++counts_[static_cast<size_t>(kept.labels[i] * classes + told)];
  }
}

ClassScore Confusion::score(int64_t label) const {
  ClassScore score;
  for (int64_t other = 0; other < classes_; ++other) {
    score.samples += count(label, other);
    score.told += count(other, label);
  }
  score.right = count(label, label);
  return score;
}

Json Confusion::to_json(const std::vector<std::string>& names) const {
  Json json = {{"classes", Json::array()}, {"matrix", Json::array()}};
  for (int64_t label = 0; label < classes_; ++label) {
    const ClassScore own = score(label);
    json["classes"].push_back({{"name", name_at(names, label)},
                               {"samples", own.samples},
                               {"precision", own.precision()},
                               {"recall", own.recall()}});
    Json row = Json::array();
    for (int64_t told = 0; told < classes_; ++told) row.push_back(count(label, told));
    json["matrix"].push_back(std::move(row));
  }
  return json;
}

std::string Confusion::to_text(const std::vector<std::string>& names) const {
  constexpr size_t kMostPairs = 10;
  struct Pair {
    int64_t label, told, count;
  };
  std::vector<Pair> pairs;
  size_t width = 5;
  for (int64_t label = 0; label < classes_; ++label) {
    width = std::max(width, name_at(names, label).size());
  }
  std::string text = fmt::format("{:{}}  samples  precision   recall\n", "class", width);
  for (int64_t label = 0; label < classes_; ++label) {
    const ClassScore own = score(label);
    if (own.samples == 0 && own.told == 0) continue;
    text += fmt::format("{:{}}  {:7}  {:7.2f} %  {:5.2f} %\n", name_at(names, label), width,
                        own.samples, 100 * own.precision(), 100 * own.recall());
    for (int64_t told = 0; told < classes_; ++told) {
      if (told != label && count(label, told) > 0)
        pairs.push_back({label, told, count(label, told)});
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const Pair& a, const Pair& b) { return a.count > b.count; });
  if (pairs.size() > kMostPairs) pairs.resize(kMostPairs);
  for (const Pair& pair : pairs) {
    text += fmt::format("{} of {} taken for {}\n", pair.count, name_at(names, pair.label),
                        name_at(names, pair.told));
  }
  return text;
}

}  // namespace millrace::train
