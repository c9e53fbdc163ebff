// A file that grows by whole lines while a job runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/output_place.h"

namespace millrace {

// Replaces the file by the lines that are kept (as OutputFile does), then adds lines at its end.
// Each line is written in one piece; one that did not fit is taken back, so that the file never
// ends in half a line unless the process is killed in that very call. Lines that cannot be written
// wait and are tried again with the next. Links are followed, devices and pipes written through.
// Used by one thread.
class LineFile {
 public:
  // Throws InputError if the file cannot be made.
  LineFile(const std::filesystem::path& path, std::string_view kept);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  void add(std::string_view line);         // without its end
  void add_piece(std::string_view piece);  // bytes of any kind, as they are

  // Why lines are still waiting; empty if none are.
  const std::string& failure() const { return failure_; }

 private:
  bool write_waiting();

  OutputPlace place_;
  int descriptor_ = -1;
  int64_t size_ = 0;  // of a plain file
  std::string waiting_;
  std::string failure_;
};

}  // namespace millrace
