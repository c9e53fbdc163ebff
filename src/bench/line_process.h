// A child process that is talked to in lines: one out, one back.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/json.h"

namespace millrace::bench {

// Starts the program on construction and ends it on destruction. Its standard error is ours.
class LineProcess {
 public:
  explicit LineProcess(const std::vector<std::string>& command);
  ~LineProcess();
  LineProcess(const LineProcess&) = delete;
  LineProcess& operator=(const LineProcess&) = delete;

  // Sends a line (nothing if empty) and waits for a line of JSON. Throws JobError if the
  // process ends or answers something else.
  Json ask(const std::string& line);

 private:
  std::string name_;
  pid_t child_ = -1;
  int to_child_ = -1;
  int from_child_ = -1;
  std::string pending_;
};

}  // namespace millrace::bench
