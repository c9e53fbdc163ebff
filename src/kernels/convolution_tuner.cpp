#include "kernels/convolution_tuner.h"

#include <malloc.h>

#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace millrace {
namespace {

// The plain way needs no reason; another must be clearly faster.
constexpr double kWorthwhile = 0.95;
constexpr int kFileVersion = 3;

std::string other_than(const std::string& processor,
                       const std::map<std::string, ConvolutionTuner::Choices>& kept) {
  return (kept.begin()->first == processor ? std::next(kept.begin()) : kept.begin())->first;
}

}  // namespace

ConvolutionTuner::ConvolutionTuner(std::filesystem::path cache_file, std::string processor)
    : cache_file_(std::move(cache_file)), processor_(std::move(processor)) {
  if (cache_file_.empty() || !std::filesystem::exists(cache_file_)) return;
  try {
    const Json file = Json::parse(read_text(cache_file_));
    if (file.at("version") != kFileVersion) return;
    kept_ = file.at("processors").get<std::map<std::string, Choices>>();
    choices_ = kept_[processor_];
    if (choices_.empty() && kept_.size() > 1) {
      warning_ = fmt::format(
          "The convolution choices in '{}' were measured on another processor ({}); those of this "
          "one ({}) are measured now.",
          cache_file_.string(), other_than(processor_, kept_), processor_);
    }
  } catch (const std::exception&) {
    warning_ = fmt::format("The convolution choices in '{}' cannot be read and are measured again.",
                           cache_file_.string());
  }
}

size_t ConvolutionTuner::choose(const std::string& problem,
                                const std::vector<Candidate>& candidates) {
  auto found = choices_.find(problem);
  if (found == choices_.end()) {
    if (measured_ == 0 && notify_) notify_();
    size_t best = 0;
    double least = candidates.at(0).measure() * kWorthwhile;
    for (size_t i = 1; i < candidates.size(); ++i) {
      const double seconds = candidates[i].measure();
      if (seconds >= least) continue;
      least = seconds;
      best = i;
    }
    found = choices_.emplace(problem, candidates[best].name).first;
    kept_[processor_][problem] = found->second;
    changed_ = true;
    ++measured_;
    ::malloc_trim(0);  // the buffers of the measurement must not count towards the job
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].name == found->second) return i;
  }
  return 0;
}

void ConvolutionTuner::adopt(const Choices& choices, const std::string& processor) {
  for (const auto& [problem, choice] : choices) {
    choices_[problem] = choice;
    if (processor != processor_) continue;
    std::string& known = kept_[processor_][problem];
    changed_ = changed_ || known != choice;
    known = choice;
  }
}

void ConvolutionTuner::save() {
  if (!changed_ || cache_file_.empty()) return;
  try {
    std::filesystem::create_directories(cache_file_.parent_path());
    const Json file = {{"version", kFileVersion}, {"processors", kept_}};
    write_text(cache_file_, file.dump(1) + "\n");
    changed_ = false;
  } catch (const std::exception& error) {
    warning_ = fmt::format("The convolution choices are not kept: {}", error.what());
  }
}

std::filesystem::path ConvolutionTuner::default_path() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return std::filesystem::path(cache) / "millrace" / "convolutions.json";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return std::filesystem::path(home) / ".cache" / "millrace" / "convolutions.json";
  }
  return {};
}

}  // namespace millrace
