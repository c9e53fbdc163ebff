// What jobs wrote, for people.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace millrace::api {

// Runs side by side. Plain data: a page of HTML that needs no other file and no network.
class Report {
 public:
  // Files of summaries, metrics, traces and plans, which are one run, or directories of them, each
  // a run or several. Throws InputError if nothing can be read.
  explicit Report(const std::vector<std::filesystem::path>& paths);

  const std::string& page() const { return page_; }
  // Tables as Markdown.
  const std::string& text() const { return text_; }

 private:
  std::string page_;
  std::string text_;
};

// A picture (SVG) of some steps of a trace.
std::string timeline_of(const std::filesystem::path& trace, int64_t steps = 2);

}  // namespace millrace::api
