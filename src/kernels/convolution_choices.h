// Which method each convolution of a program uses.
//
// What a checkpoint or another process says counts most, then what `millrace tune` measured on this
// model of processor, then the shipped costs (convolution_costs.h): nothing is measured here, and
// the same job makes the same choices, and with them the same bits, on the same kind of processor.
// Used by one thread at a time. A file that cannot be read or written, or only knows other
// processors, is not an error: `warning` says so.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/processor.h"

namespace millrace::kernels {

enum class ConvolutionMethod : uint8_t;
struct ConvolutionProblem;
struct KernelOptions;

class ConvolutionChoices {
 public:
  using Methods = std::map<std::string, std::string>;  // names, by tuning_key

  // An empty path knows nothing measured. `processor` is what measurements hold for.
  explicit ConvolutionChoices(std::filesystem::path cache_file,
                              std::string processor = processor_description());

  // One of `methods`, of which the first is the plain one: another has to be clearly faster.
  ConvolutionMethod choose(const ConvolutionProblem& problem, const KernelOptions& options,
                           const std::vector<ConvolutionMethod>& methods);

  // `tell` is called whenever a problem is chosen for.
  using Listener = std::function<void(const ConvolutionProblem&, const KernelOptions&,
                                      const std::vector<ConvolutionMethod>&)>;
  void on_choice(Listener tell) { tell_ = std::move(tell); }

  // What was chosen so far or adopted from elsewhere.
  const Methods& used() const { return used_; }
  void adopt(const Methods& methods);

  // What was measured on this model of processor, here or on another machine.
  const Methods& measured() const { return measured_; }
  void take_measured(const Methods& methods) { measured_ = methods; }

  // Keeps a measurement and writes the file.
  void remember(const std::string& key, const std::string& method);

  const std::filesystem::path& cache_file() const { return cache_file_; }
  const std::string& warning() const { return warning_; }

  // $XDG_CACHE_HOME/millrace/convolutions.json, or the same under ~/.cache.
  static std::filesystem::path default_path();

 private:
  void save();

  std::filesystem::path cache_file_;
  std::string processor_;
  Methods measured_;
  Methods used_;
  Listener tell_;
  std::map<std::string, Methods> kept_;  // in the file, by processor
  std::string warning_;
};

}  // namespace millrace::kernels
