#include "train/observer.h"

#include <fmt/format.h>

#include <stdexcept>

namespace millrace::train {

const Measured& EvaluationReport::figure(std::string_view metric) const {
  for (const Measured& one : figures) {
    if (one.metric == metric) return one;
  }
  throw std::out_of_range(fmt::format("the evaluation has no {}", metric));
}

std::string EvaluationReport::seen() const {
  std::string text;
  if (samples > 0) text = fmt::format("{} test samples", samples);
  if (pairs > 0) text += fmt::format("{}{} pairs", text.empty() ? "" : " and ", pairs);
  return text;
}

std::string EvaluationReport::text() const {
  std::string text;
  for (const Measured& one : figures) text += (text.empty() ? "" : ", ") + describe(one);
  return text;
}

}  // namespace millrace::train
