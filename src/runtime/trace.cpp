#include "runtime/trace.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <stdexcept>

namespace millrace::runtime {

std::string_view name_of(TraceCategory category) {
  constexpr std::string_view kNames[] = {"forward",       "backward", "update",
                                         "communication", "wait",     "data"};
  return kNames[static_cast<size_t>(category)];
}

int64_t trace_now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

TraceRecorder::TraceRecorder(std::vector<TraceDevice> devices, int64_t events_per_device)
    : devices_(std::move(devices)), buffers_(std::make_unique<Buffer[]>(devices_.size())) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    buffers_[i].records.resize(static_cast<size_t>(events_per_device));
    buffers_[i].instructions.resize(static_cast<size_t>(events_per_device));
  }
}

void TraceRecorder::add(int device, TraceCategory category, std::string_view name,
                        int64_t micro_batch, int64_t begin, int64_t end) {
  Buffer& buffer = buffers_[static_cast<size_t>(device)];
  const int64_t place = buffer.used.fetch_add(1, std::memory_order_relaxed);
  if (place >= std::ssize(buffer.records)) return;
  Record& record = buffer.records[static_cast<size_t>(place)];
  record.begin = begin;
  record.end = end;
  record.micro_batch = micro_batch;
  record.category = category;
  record.length = static_cast<uint8_t>(std::min(name.size(), record.name.size()));
  std::copy_n(name.begin(), record.length, record.name.begin());
}

void TraceRecorder::add(int device, const TraceLabel& label, int64_t micro_batch, int64_t begin,
                        int64_t end) {
  Buffer& buffer = buffers_[static_cast<size_t>(device)];
  const int64_t place = buffer.used_instructions.fetch_add(1, std::memory_order_relaxed);
  if (place >= std::ssize(buffer.instructions)) return;
  buffer.instructions[static_cast<size_t>(place)] = {&label, micro_batch, begin, end};
}

TraceLog TraceRecorder::log() const {
  TraceLog log;
  log.devices = devices_;
  for (size_t i = 0; i < devices_.size(); ++i) {
    const Buffer& buffer = buffers_[i];
    const int64_t used = buffer.used.load();
    const int64_t kept = std::min(used, std::ssize(buffer.records));
    log.dropped += used - kept;
    for (int64_t k = 0; k < kept; ++k) {
      const Record& record = buffer.records[static_cast<size_t>(k)];
      log.events.push_back({static_cast<int>(i), record.category,
                            std::string(record.name.data(), record.length), record.micro_batch,
                            record.begin, record.end});
    }
    const int64_t ran = buffer.used_instructions.load();
    const int64_t known = std::min(ran, std::ssize(buffer.instructions));
    log.dropped += ran - known;
    for (int64_t k = 0; k < known; ++k) {
      const InstructionRecord& record = buffer.instructions[static_cast<size_t>(k)];
      log.instructions.push_back(
          {static_cast<int>(i), *record.label, record.micro_batch, record.begin, record.end});
    }
  }
  return log;
}

int64_t earliest(const TraceLog& log) {
  if (log.events.empty() && log.instructions.empty()) return 0;
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const TraceEvent& event : log.events) first = std::min(first, event.begin);
  for (const TraceInstruction& one : log.instructions) first = std::min(first, one.begin);
  return first;
}

TraceLog merge(const std::vector<TraceLog>& logs, const std::vector<int64_t>& offsets) {
  if (!offsets.empty() && offsets.size() != logs.size()) {
    throw std::logic_error("traces are merged with another number of clock offsets");
  }
  TraceLog merged;
  for (size_t i = 0; i < logs.size(); ++i) {
    const int64_t offset = offsets.empty() ? 0 : offsets[i];
    std::vector<int> place;
    for (const TraceDevice& device : logs[i].devices) {
      const auto known = std::find(merged.devices.begin(), merged.devices.end(), device);
      place.push_back(static_cast<int>(known - merged.devices.begin()));
      if (known == merged.devices.end()) merged.devices.push_back(device);
    }
    for (TraceEvent event : logs[i].events) {
      event.device = place.at(static_cast<size_t>(event.device));
      event.begin += offset;
      event.end += offset;
      merged.events.push_back(std::move(event));
    }
    for (TraceInstruction instruction : logs[i].instructions) {
      instruction.device = place.at(static_cast<size_t>(instruction.device));
      instruction.begin += offset;
      instruction.end += offset;
      merged.instructions.push_back(std::move(instruction));
    }
    merged.dropped += logs[i].dropped;
  }
  return merged;
}

}  // namespace millrace::runtime
