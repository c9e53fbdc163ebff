// Remembers which convolution algorithm was fastest.
//
// Each problem (shapes, direction, threads, processor) is measured once; the verdicts are kept
// in a small JSON file so that later runs make the same choice without measuring, and with it
// the same bits. Used by one thread at a time. A file that cannot be read or written is not an
// error: the choices then hold for this process, and `warning` says so.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace millrace {

class ConvolutionTuner {
 public:
  // An empty path keeps the choices in memory.
  explicit ConvolutionTuner(std::filesystem::path cache_file);

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

  // What is known, and the choices of another process, which count more than those known here.
  const std::map<std::string, std::string>& choices() const { return choices_; }
  void adopt(const std::map<std::string, std::string>& choices);

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
  std::map<std::string, std::string> choices_;
  std::string warning_;
  int measured_ = 0;
  bool changed_ = false;
};

}  // namespace millrace
