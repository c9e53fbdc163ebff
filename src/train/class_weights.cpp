#include "train/class_weights.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "data/share_source.h"

namespace millrace::train {
namespace {

std::vector<double> balanced_weights(const TrainJob& job) {
  std::unique_ptr<data::RecordSource> source =
      data::open_source(job.data.source, data::Split::train, job.class_names);
  if (job.data.valid_share > 0) {
    source =
        data::take_share(std::move(source), job.data.valid_share, job.seed, data::Split::train);
  }
  const auto classes = static_cast<size_t>(job.options.classes);
  std::vector<int64_t> counts(classes, 0);
  for (uint64_t i = 0; i < source->count(); ++i) {
    const std::optional<int64_t> label = source->label(i);
    if (!label) {
      fail_input(
          "‹class_weights› balanced needs data that tells its labels at once (folder, idx, raw), "
          "not '{}'; give a file of weights.",
          job.data.source);
    }
    const int64_t place = *label - job.data.label_offset;
    if (place >= 0 && place < job.options.classes) ++counts[static_cast<size_t>(place)];
  }
  std::vector<double> weights(classes, 0);
  const auto all = static_cast<double>(source->count());
  for (size_t c = 0; c < classes; ++c) {
    if (counts[c] == 0) continue;
    weights[c] = all / (static_cast<double>(classes) * static_cast<double>(counts[c]));
  }
  return weights;
}

double parse_weight(const std::string& text, const std::string& path, int64_t line) {
  double weight = -1;
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, weight);
  if (status != std::errc() || stop != end || !std::isfinite(weight) || weight < 0) {
    fail_input("‹class_weights›: line {} of '{}' is no weight: '{}'; write a number of 0 or more.",
               line, path, text);
  }
  return weight;
}

std::vector<double> weights_in_file(const TrainJob& job, const std::string& path) {
  const auto classes = static_cast<size_t>(job.options.classes);
  std::vector<double> weights(classes, -1);
  if (!std::filesystem::exists(path)) {
    fail_input("‹class_weights› is '{}'; write balanced, or name a file, which this is not.", path);
  }
  std::istringstream text(read_text(path));
  int64_t number = 0;
  size_t next = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    const size_t end = line.find_last_not_of(" \t\r");
    if (end == std::string::npos || line[0] == '#') continue;
    line.resize(end + 1);
    const size_t gap = line.find_last_of(" \t");
    size_t place = next++;
    if (gap != std::string::npos) {
      const std::string name = line.substr(0, line.find_last_not_of(" \t", gap) + 1);
      const auto found = std::find(job.class_names.begin(), job.class_names.end(), name);
      if (found == job.class_names.end()) {
        fail_input("‹class_weights›: line {} of '{}' names '{}', which is no class of the data.",
                   number, path, name);
      }
      place = static_cast<size_t>(found - job.class_names.begin());
      line.erase(0, gap + 1);
    }
    if (place >= classes || weights[place] >= 0) {
      fail_input("‹class_weights›: line {} of '{}' is one too many for {} classes.", number, path,
                 classes);
    }
    weights[place] = parse_weight(line, path, number);
  }
  const auto missing = std::find(weights.begin(), weights.end(), -1.0);
  if (missing != weights.end()) {
    fail_input("‹class_weights›: '{}' has no weight for class {} of {}.", path,
               missing - weights.begin(), classes);
  }
  return weights;
}

}  // namespace

std::vector<double> class_weights_of(const TrainJob& job, const std::string& specification) {
  std::vector<double> weights =
      specification == "balanced" ? balanced_weights(job) : weights_in_file(job, specification);
  if (std::none_of(weights.begin(), weights.end(), [](double weight) { return weight > 0; })) {
    fail_input("‹class_weights› {} leaves no class that counts.", specification);
  }
  return weights;
}

}  // namespace millrace::train
