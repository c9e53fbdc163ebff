// Traces as Chrome trace JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open.
//
// A process per node and a track per device; communication, which runs beside the computation, has
// tracks of its own, as many as it takes for nothing to overlap. Times begin at the earliest event.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/trace.h"

namespace millrace::runtime {

// The category of instructions, which lie within the events of their device.
inline constexpr std::string_view kInstructionCategory = "instruction";

// Tracks of communication are numbered behind those of the devices.
inline constexpr int kCommunicationTracks = 1'000'000;

// What a file holds: what happened or, simulated, what would.
struct TraceFile {
  TraceLog log;
  bool simulated = false;
};

std::string trace_to_json(const TraceLog& log, bool simulated = false);

// Writes trace_to_json, whole or not at all.
void write_trace(const std::filesystem::path& path, const TraceLog& log, bool simulated = false);

// Reads what trace_to_json made, and other traces of complete events as far as they name our
// categories. Takes any bytes, and a few times the memory of the events: throws InputError naming
// `source` and the event at fault.
TraceFile parse_trace_file(std::string_view text, const std::string& source);
TraceLog parse_trace(std::string_view text, const std::string& source);

}  // namespace millrace::runtime
