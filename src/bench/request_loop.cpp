#include "bench/request_loop.h"

namespace millrace::bench {

void serve_requests(const RequestLines& lines, const Json& ready,
                    const std::map<std::string, std::function<Json()>>& answers) {
  lines.write(ready.dump());
  std::string line;
  while (lines.read(line) && line != "quit") {
    const auto found = answers.find(line);
    const Json answer =
        found == answers.end() ? Json{{"error", "unknown request"}} : found->second();
    lines.write(answer.dump());
  }
}

}  // namespace millrace::bench
