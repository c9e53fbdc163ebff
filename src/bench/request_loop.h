// Answers requests one at a time, so that a benchmark can alternate between this process and
// another: lines out, lines of JSON back.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/json.h"

namespace millrace::bench {

// `read` gives the next line, or false at the end; `write` takes an answer.
struct RequestLines {
  std::function<bool(std::string&)> read;
  std::function<void(const std::string&)> write;
};

// Writes `ready`, then answers each line by the function of that name, until "quit" or the end of
// the input.
void serve_requests(const RequestLines& lines, const Json& ready,
                    const std::map<std::string, std::function<Json()>>& answers);

}  // namespace millrace::bench
