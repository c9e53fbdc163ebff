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
constexpr int kFileVersion = 2;

}  // namespace

ConvolutionTuner::ConvolutionTuner(std::filesystem::path cache_file)
    : cache_file_(std::move(cache_file)) {
  if (cache_file_.empty() || !std::filesystem::exists(cache_file_)) return;
  try {
    const Json file = Json::parse(read_text(cache_file_));
    if (file.at("version") != kFileVersion) return;
    choices_ = file.at("choices").get<std::map<std::string, std::string>>();
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
    changed_ = true;
    ++measured_;
    ::malloc_trim(0);  // the buffers of the measurement must not count towards the job
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].name == found->second) return i;
  }
  return 0;
}

void ConvolutionTuner::adopt(const std::map<std::string, std::string>& choices) {
  for (const auto& [problem, choice] : choices) {
    std::string& known = choices_[problem];
    changed_ = changed_ || known != choice;
    known = choice;
  }
}

void ConvolutionTuner::save() {
  if (!changed_ || cache_file_.empty()) return;
  try {
    std::filesystem::create_directories(cache_file_.parent_path());
    const Json file = {{"version", kFileVersion}, {"choices", choices_}};
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
