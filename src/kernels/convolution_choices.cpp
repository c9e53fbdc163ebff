#include "kernels/convolution_choices.h"

#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "kernels/convolution_costs.h"
#include "kernels/convolution_problem.h"

namespace millrace::kernels {
namespace {

constexpr int kFileVersion = 3;

std::string other_than(const std::string& processor,
                       const std::map<std::string, ConvolutionChoices::Methods>& kept) {
  return (kept.begin()->first == processor ? std::next(kept.begin()) : kept.begin())->first;
}

const std::string* find(const ConvolutionChoices::Methods& methods, const std::string& key) {
  const auto found = methods.find(key);
  return found == methods.end() ? nullptr : &found->second;
}

}  // namespace

ConvolutionChoices::ConvolutionChoices(std::filesystem::path cache_file, std::string processor)
    : cache_file_(std::move(cache_file)), processor_(std::move(processor)) {
  if (cache_file_.empty()) return;
  try {
    if (!std::filesystem::exists(cache_file_)) return;
    const Json file = Json::parse(read_text(cache_file_));
    if (file.at("version") != kFileVersion) return;
    kept_ = file.at("processors").get<std::map<std::string, Methods>>();
    measured_ = kept_[processor_];
    if (measured_.empty() && kept_.size() > 1) {
      warning_ = fmt::format(
          "The convolution choices in '{}' were measured on another processor ({}) and are not "
          "used on this one ({}); 'millrace tune' measures it.",
          cache_file_.string(), other_than(processor_, kept_), processor_);
    }
  } catch (const std::exception&) {
    warning_ = fmt::format(
        "The convolution choices in '{}' cannot be read and are not used; 'millrace tune' measures "
        "them again.",
        cache_file_.string());
  }
}

ConvolutionMethod ConvolutionChoices::choose(const ConvolutionProblem& problem,
                                             const KernelOptions& options,
                                             const std::vector<ConvolutionMethod>& methods) {
  if (tell_) tell_(problem, options, methods);
  const std::string key = tuning_key(problem, options);
  const std::string* name = find(used_, key);
  if (name == nullptr) name = find(measured_, key);
  ConvolutionMethod chosen = cheapest_method(problem, methods);
  for (const ConvolutionMethod method : methods) {
    if (name != nullptr && name_of(method) == *name) chosen = method;
  }
  used_.emplace(key, name_of(chosen));
  return chosen;
}

void ConvolutionChoices::adopt(const Methods& methods) {
  for (const auto& [key, method] : methods) used_[key] = method;
}

void ConvolutionChoices::remember(const std::string& key, const std::string& method) {
  measured_[key] = kept_[processor_][key] = method;
  save();
}

void ConvolutionChoices::save() {
  if (cache_file_.empty()) return;
  try {
    std::filesystem::create_directories(cache_file_.parent_path());
    const Json file = {{"version", kFileVersion}, {"processors", kept_}};
    write_text(cache_file_, file.dump(1) + "\n");
  } catch (const std::exception& error) {
    warning_ = fmt::format("The convolution choices are not kept: {}", marked_text(error));
  }
}

std::filesystem::path ConvolutionChoices::default_path() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return std::filesystem::path(cache) / "millrace" / "convolutions.json";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return std::filesystem::path(home) / ".cache" / "millrace" / "convolutions.json";
  }
  return {};
}

}  // namespace millrace::kernels
