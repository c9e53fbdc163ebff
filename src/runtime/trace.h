// What every device did when, on one clock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::runtime {

enum class TraceCategory : uint8_t { forward, backward, update, communication, wait, data };

inline constexpr int kTraceCategories = 6;

std::string_view name_of(TraceCategory category);

struct TraceDevice {
  int node = 0;
  int device = 0;
  int stage = 0;

  bool operator==(const TraceDevice&) const = default;
};

// `name` says what was computed or sent; of a wait, the cause. Times are nanoseconds of trace_now.
struct TraceEvent {
  int device = 0;  // index into the log's devices
  TraceCategory category = TraceCategory::forward;
  std::string name;
  int64_t micro_batch = -1;  // -1: none
  int64_t begin = 0;
  int64_t end = 0;

  bool operator==(const TraceEvent&) const = default;
};

// What an instruction is: of a program, or of what lies between stages. Plain data.
struct TraceLabel {
  std::string name;
  std::string kind;   // "compute", "all_reduce", "send" ...
  std::string layer;  // that it belongs to
  int64_t bytes = 0;  // that it reads, writes or sends
  double arithmetic = 0;
  bool communicates = false;

  bool operator==(const TraceLabel&) const = default;
};

// One run of an instruction; it lies within an event of its device.
struct TraceInstruction {
  int device = 0;
  TraceLabel label;
  int64_t micro_batch = -1;
  int64_t begin = 0;
  int64_t end = 0;

  bool operator==(const TraceInstruction&) const = default;
};

// Plain data. Events and instructions are in no particular order.
struct TraceLog {
  std::vector<TraceDevice> devices;
  std::vector<TraceEvent> events;
  std::vector<TraceInstruction> instructions;
  int64_t dropped = 0;  // events for which there was no room
};

// Nanoseconds of a clock that all processes of a host share and that never goes back.
int64_t trace_now();

// Takes events of running devices. All memory is taken at construction: each device has room for
// so many events and instructions, and later ones are only counted. `add` may be called by any
// thread for any device, and neither waits nor allocates; names are cut to 39 bytes. `log` must not
// run beside it.
class TraceRecorder {
 public:
  TraceRecorder(std::vector<TraceDevice> devices, int64_t events_per_device);

  void add(int device, TraceCategory category, std::string_view name, int64_t micro_batch,
           int64_t begin, int64_t end);
  // Likewise; the label must last until the last `log`.
  void add(int device, const TraceLabel& label, int64_t micro_batch, int64_t begin, int64_t end);

  TraceLog log() const;

 private:
  struct Record {
    int64_t begin;
    int64_t end;
    int64_t micro_batch;
    TraceCategory category;
    std::array<char, 39> name;
    uint8_t length;
  };
  struct InstructionRecord {
    const TraceLabel* label;
    int64_t micro_batch;
    int64_t begin;
    int64_t end;
  };
  struct alignas(64) Buffer {
    std::vector<Record> records;
    std::vector<InstructionRecord> instructions;
    std::atomic<int64_t> used = 0;  // counts on when the buffer is full
    std::atomic<int64_t> used_instructions = 0;
  };

  std::vector<TraceDevice> devices_;
  std::unique_ptr<Buffer[]> buffers_;
};

// Records the time from its construction to its end; `name` must last until then. Does nothing
// without a recorder.
class TraceScope {
 public:
  TraceScope(TraceRecorder* recorder, int device, TraceCategory category, std::string_view name,
             int64_t micro_batch = -1)
      : recorder_(recorder),
        device_(device),
        category_(category),
        name_(name),
        micro_batch_(micro_batch),
        begin_(recorder == nullptr ? 0 : trace_now()) {}
  ~TraceScope() {
    if (recorder_ == nullptr) return;
    recorder_->add(device_, category_, name_, micro_batch_, begin_, trace_now());
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  TraceRecorder* recorder_;
  int device_;
  TraceCategory category_;
  std::string_view name_;
  int64_t micro_batch_;
  int64_t begin_;
};

// When its first event or instruction begins; 0 if it has none.
int64_t earliest(const TraceLog& log);

// One log of several ranks'. `offsets`, one per log or none, are added to its times: what the first
// rank's clock shows minus what that rank's shows. A device that is in several logs is one.
TraceLog merge(const std::vector<TraceLog>& logs, const std::vector<int64_t>& offsets = {});

}  // namespace millrace::runtime
