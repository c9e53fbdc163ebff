#include "train/loop/job_trace.h"

#include "comm/texts.h"
#include "runtime/trace_file.h"

namespace millrace::train {

constexpr int64_t kEvents = 200000;

JobTrace::JobTrace(Engine& engine) : recorder_(engine.trace_devices(), kEvents) {
  engine.set_trace(&recorder_);
}

void JobTrace::save(const std::filesystem::path& path, Engine& engine) const {
  const runtime::TraceLog own = recorder_.log();
  if (engine.rank_group() == nullptr) {
    runtime::write_trace(path, own);
    return;
  }
  const auto texts = comm::collect_texts(*engine.rank_group(), runtime::trace_to_json(own), 0);
  const auto starts =
      comm::gather_texts(*engine.rank_group(), std::to_string(runtime::earliest(own)));
  if (engine.rank() != 0) return;
  std::vector<runtime::TraceLog> logs;
  std::vector<int64_t> offsets;  // each text counts from its own earliest event
  for (size_t i = 0; i < texts.size(); ++i) {
    logs.push_back(runtime::parse_trace(texts[i], "‹trace›"));
    offsets.push_back(std::stoll(starts[i]) - std::stoll(starts[0]));
  }
  runtime::write_trace(path, runtime::merge(logs, offsets));
}

}  // namespace millrace::train
