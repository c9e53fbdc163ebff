// Runs a schedule on paper: items of work on lanes, transfers over shared links, bounded channels.
//
// The input is plain data and knows nothing of networks or schedules, so that it can be filled from
// a planner's candidate or from compiled programs. The run is deterministic: equal input, equal
// result. Single-threaded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::simulate {

// Memory that an item takes (positive) or gives back (negative) on a device.
struct MemoryChange {
  int device = 0;
  double bytes = 0;
  bool at_end = false;  // else when the item starts
};

// One piece of work. It starts when every item of `after` has ended, every counter of `acquire`
// has one left (which it takes), and its lane is free; it lasts `seconds`, and then as long as its
// `bytes` take over every one of its links at once. When it ends it gives one back to every counter
// of `release`.
//
// A transfer is an item without a lane. A collective is a transfer that follows an item of each
// member and uses the links of all. A bounded channel is a counter that starts at its number of
// slots: the producer acquires, the consumer releases.
struct SimulationItem {
  std::string name;
  std::string category;  // "forward", "backward", "update", "transfer", "collective", ...
  int lane = -1;
  double seconds = 0;
  double bytes = 0;
  double rate = 0;         // most bytes per second, besides what the links give; 0: no such limit
  std::vector<int> links;  // those with bytes have links or a rate
  // What a byte takes of each of the links, in the link's own unit; empty: one each. With it links
  // also stand for other things that are shared, such as the cores of a host.
  std::vector<double> weights = {};
  std::vector<int> after;
  std::vector<int> acquire, release;
  std::vector<MemoryChange> memory;
};

// Runs one item at a time: those of an ordered lane in the order of the input, those of another
// as soon as they can, the earlier in the input first.
struct SimulationLane {
  int device = 0;
  std::string name;
  bool ordered = true;
};

// Items that use a link at the same time share it evenly.
struct SimulationLink {
  std::string name;
  double bandwidth = 0;  // bytes per second
};

struct SimulationInput {
  int devices = 0;
  std::vector<SimulationLane> lanes;
  std::vector<SimulationLink> links;
  std::vector<int> counters;  // what each starts with
  std::vector<SimulationItem> items;
};

struct MemoryPoint {
  double seconds = 0;
  double bytes = 0;
};

struct SimulationResult {
  double seconds = 0;                            // until the last item ends
  std::vector<double> start, end;                // of each item
  std::vector<double> lane_busy;                 // seconds in which a lane ran something
  std::vector<double> link_bytes;                // that went over each link, by weight
  std::vector<double> peak_memory;               // of each device
  std::vector<std::vector<MemoryPoint>> memory;  // of each device, after each change

  // Share of the time in which a lane ran nothing.
  double idle_share(int lane) const;
};

// Throws std::logic_error naming an item that can never start, or an index out of range.
SimulationResult simulate(const SimulationInput& input);

}  // namespace millrace::simulate
