// Remembers which convolution algorithm was fastest.
//
// Each problem (shapes, direction, threads) is measured once on a model of processor; the verdicts
// are kept in a small JSON file so that later runs make the same choice without measuring, and with
// it the same bits. Those of other processors stay in the file and are not used. Used by one thread
// at a time. A file that cannot be read or written, or only knows other processors, is not an
// error: `warning` says so.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/processor.h"

namespace millrace {

class ConvolutionTuner {
 public:
  // An empty path keeps the choices in memory. `processor` is what they are measured on.
  explicit ConvolutionTuner(std::filesystem::path cache_file,
                            std::string processor = processor_description());

  // A way to do it: its name, and how to measure the seconds of one run.
  struct Candidate {
    std::string name;
    std::function<double()> measure;
  };

  // Called once, before the first measurement.
  void on_first_measurement(std::function<void()> notify) { notify_ = std::move(notify); }

  // The index of the remembered choice for `problem`, or measures all and remembers. The first
  // candidate is the plain one: another has to be clearly faster.
  size_t choose(const std::string& problem, const std::vector<Candidate>& candidates);

  using Choices = std::map<std::string, std::string>;  // by problem

  // What is known, and the choices of another process, which count more than those known here; they
  // are kept if they were measured on the same model of processor.
  const Choices& choices() const { return choices_; }
  const std::string& processor() const { return processor_; }
  void adopt(const Choices& choices, const std::string& processor);

  // Writes the file if there is something new.
  void save();

  // Problems measured by this process.
  int measured() const { return measured_; }
  const std::string& warning() const { return warning_; }

  // $XDG_CACHE_HOME/millrace/convolutions.json, or the same under ~/.cache.
  static std::filesystem::path default_path();

 private:
  std::filesystem::path cache_file_;
  std::function<void()> notify_;
  std::string processor_;
  Choices choices_;
  std::map<std::string, Choices> kept_;  // in the file, by processor
  std::string warning_;
  int measured_ = 0;
  bool changed_ = false;
};

}  // namespace millrace
