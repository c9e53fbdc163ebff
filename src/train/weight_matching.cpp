#include "train/weight_matching.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/pattern.h"
#include "base/text.h"
#include "models/models.h"
#include "train/model_card.h"

namespace millrace::train {
namespace {

constexpr std::string_view kCounter = "num_batches_tracked";

std::string_view layer_of(std::string_view name) { return name.substr(0, name.rfind('.')); }

// A fault that a file has, and the tensors that have it.
struct Mismatch {
  std::string_view fault;
  std::vector<std::string> clauses = {};
};

// What is wrong with a file, by kind.
struct Mismatches {
  Mismatch missing = {"are missing"};
  Mismatch misshapen = {"differ"};
  Mismatch extra = {"are too many"};
};

[[noreturn]] void fail_weights(const data::WeightsFile& file, const Mismatch& mismatch,
                               std::string_view advice) {
  const size_t count = mismatch.clauses.size();
  fail_input("'{}' does not fit the model: {}{}{}.", file.path().string(), mismatch.clauses.front(),
             count == 1 ? "" : fmt::format(" ({} tensors {})", count, mismatch.fault), advice);
}

// What keeps a tensor from being loaded, as a clause; empty if nothing does.
std::string mismatch_of(const JobTensor& tensor, const data::WeightTensor& stored) {
  if (stored.shape != tensor.shape) {
    return fmt::format("tensor '{}' has shape {} where the model has {}", tensor.name,
                       graph::to_string(stored.shape), graph::to_string(tensor.shape));
  }
  if (data::is_float(stored.type)) return {};
  return fmt::format("tensor '{}' has type {} where numbers with fractions are needed", tensor.name,
                     data::name_of(stored.type));
}

// A pattern names layers of the model, or of the file only, which are passed over then.
void require_fit(const std::string& pattern, const data::WeightsFile& file,
                 const std::vector<JobTensor>& tensors) {
  const auto fits = [&](const auto& tensor) { return fits_pattern(pattern, tensor.name); };
  if (std::any_of(tensors.begin(), tensors.end(), fits)) return;
  if (std::any_of(file.tensors().begin(), file.tensors().end(), fits)) return;
  std::vector<std::string> names;
  for (const JobTensor& tensor : tensors) names.emplace_back(layer_of(tensor.name));
  const std::string close = nearest(pattern, names);
  fail_input("‹new_layers› '{}' fits no layer of the network{}.", pattern,
             close.empty() ? "" : fmt::format(" (did you mean '{}'?)", close));
}

// The names of the file's classes if it tells them and they are not these.
std::vector<std::string> other_classes(const data::WeightsFile& file,
                                       const std::vector<std::string>& classes) {
  if (classes.empty()) return {};
  std::vector<std::string> names = card_of_metadata(file.metadata(), file.path()).class_names;
  return names == classes ? std::vector<std::string>() : names;
}

// The last layer with a row for each of so many classes; empty if there is none.
std::string classifier_in(const std::vector<JobTensor>& tensors, size_t classes) {
  for (auto tensor = tensors.rbegin(); tensor != tensors.rend(); ++tensor) {
    const bool fits = tensor->role == graph::Role::parameter && !tensor->shape.empty() &&
                      tensor->shape[0] == static_cast<int64_t>(classes);
    if (fits) return std::string(layer_of(tensor->name));
  }
  return {};
}

std::string some_names(const std::vector<std::string>& names) {
  constexpr size_t kMostNames = 8;
  if (names.size() <= kMostNames) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} more", fmt::join(names.begin(), names.begin() + kMostNames, ", "),
                     names.size() - kMostNames);
}

}  // namespace

WeightMatch match_weights(const data::WeightsFile& file, const std::vector<JobTensor>& tensors,
                          HeadRule head, const NewLayers* may_be_new,
                          const std::vector<std::string>& classes) {
  NewLayers new_layers = may_be_new == nullptr ? NewLayers() : *may_be_new;
  WeightMatch match;
  match.other_classes = other_classes(file, classes);
  if (new_layers.automatic && !match.other_classes.empty()) {
    const std::string classifier = classifier_in(tensors, classes.size());
    if (!classifier.empty()) new_layers.patterns.push_back(classifier);
  }
  const auto optional = [&](std::string_view name) {
    return head == HeadRule::optional && name.starts_with(graph::kHeadPrefix);
  };
  Mismatches wrong;
  std::set<std::string_view> known, new_ones;  // names of tensors, names of layers
  for (const JobTensor& tensor : tensors) {
    known.insert(tensor.name);
    const data::WeightTensor* stored = file.find(tensor.name);
    if (fits_any(new_layers.patterns, tensor.name)) {
      new_ones.insert(layer_of(tensor.name));
    } else if (stored == nullptr) {
      if (optional(tensor.name)) continue;
      new_ones.insert(layer_of(tensor.name));
      wrong.missing.clauses.push_back(fmt::format("it has no tensor '{}'", tensor.name));
    } else if (std::string clause = mismatch_of(tensor, *stored); !clause.empty()) {
      new_ones.insert(layer_of(tensor.name));
      wrong.misshapen.clauses.push_back(std::move(clause));
    }
  }
  for (const data::WeightTensor& stored : file.tensors()) {
    if (known.contains(stored.name) || stored.name.ends_with(kCounter)) continue;
    if (optional(stored.name) || fits_any(new_layers.patterns, stored.name)) continue;
    match.unplaced.push_back(stored.name);
    wrong.extra.clauses.push_back(fmt::format("the model has no tensor '{}'", stored.name));
  }
  for (const std::string& pattern : new_layers.patterns) require_fit(pattern, file, tensors);
  if (!new_layers.automatic) {
    if (!wrong.missing.clauses.empty()) fail_weights(file, wrong.missing, "");
    if (!wrong.misshapen.clauses.empty()) {
      fail_weights(file, wrong.misshapen,
                   may_be_new == nullptr ? "" : "; ‹new_layers› auto starts such layers anew");
    }
    if (!wrong.extra.clauses.empty()) fail_weights(file, wrong.extra, "");
  }
  for (const JobTensor& tensor : tensors) {
    const bool is_new = new_ones.contains(layer_of(tensor.name));
    match.loaded.push_back(!is_new && file.find(tensor.name) != nullptr);
    if (is_new) match.anew.push_back(tensor.name);
  }
  const auto loaded = std::count(match.loaded.begin(), match.loaded.end(), true);
  const auto wanted = std::count_if(tensors.begin(), tensors.end(), [&](const JobTensor& tensor) {
    return !fits_any(new_layers.patterns, tensor.name);
  });
  const bool enough =
      new_layers.automatic || new_layers.patterns.empty() ? 2 * loaded >= wanted : loaded > 0;
  if (!enough) {
    fail_input("Only {} of the model's {} tensors are in '{}'; it is of another network.", loaded,
               tensors.size(), file.path().string());
  }
  // Where whole layers of the file are left over, what fits does so by chance.
  const auto unplaced = static_cast<std::ptrdiff_t>(match.unplaced.size());
  if (new_layers.automatic && unplaced > loaded) {
    fail_input(
        "Only {} tensors of '{}' fit the model and {} have no place in it; it is of another "
        "network.",
        loaded, file.path().string(), unplaced);
  }
  return match;
}

std::string describe(const WeightMatch& match) {
  const auto loaded = std::count(match.loaded.begin(), match.loaded.end(), true);
  std::string text = fmt::format("{} of {} tensors loaded", loaded, match.loaded.size());
  if (!match.anew.empty()) {
    text +=
        fmt::format("; {} start{} anew", some_names(match.anew), match.anew.size() == 1 ? "s" : "");
    if (!match.other_classes.empty()) {
      text += fmt::format(" (the file has the classes {})", some_names(match.other_classes));
    }
  }
  if (!match.unplaced.empty()) {
    text += fmt::format("; {} of the file {} no place in the model", some_names(match.unplaced),
                        match.unplaced.size() == 1 ? "has" : "have");
  }
  return text + ".";
}

}  // namespace millrace::train
