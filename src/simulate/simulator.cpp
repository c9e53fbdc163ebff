#include "simulate/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <queue>
#include <set>
#include <stdexcept>

namespace millrace::simulate {
namespace {

enum class Moment : uint8_t { delay_over, ended };

struct Event {
  double time;
  int64_t sequence;  // ties end in the order in which they were made
  int item;
  int version;  // of the item's flow; an event of an older version is void
  Moment moment;

  bool operator>(const Event& other) const {
    return time != other.time ? time > other.time : sequence > other.sequence;
  }
};

struct Flow {
  double remaining = 0;
  double rate = 0;
  double since = 0;
  int version = 0;
};

struct LaneState {
  std::vector<int> items;  // in the order of the input
  size_t next = 0;         // of an ordered lane
  std::set<int> ready;     // of another lane
  bool busy = false;
};

double weight_of(const SimulationItem& item, size_t link) {
  return item.weights.empty() ? 1 : item.weights[link];
}

class Simulator {
 public:
  explicit Simulator(const SimulationInput& input)
      : input_(input),
        pending_(input.items.size()),
        started_(input.items.size(), false),
        followers_(input.items.size()),
        flows_(input.items.size()),
        lanes_(input.lanes.size()),
        counters_(input.counters),
        waiting_(input.counters.size()),
        active_(input.links.size()),
        level_(static_cast<size_t>(input.devices), 0.0) {
    const size_t count = input.items.size();
    result_.start.assign(count, 0);
    result_.end.assign(count, 0);
    result_.lane_busy.assign(input.lanes.size(), 0);
    result_.link_bytes.assign(input.links.size(), 0);
    result_.peak_memory.assign(level_.size(), 0);
    result_.memory.resize(level_.size());
    for (size_t i = 0; i < count; ++i) {
      const SimulationItem& item = input.items[i];
      pending_[i] = static_cast<int>(item.after.size());
      for (const int before : item.after) followers_.at(before).push_back(static_cast<int>(i));
      if (item.lane >= 0) lanes_.at(item.lane).items.push_back(static_cast<int>(i));
      if (item.bytes > 0 && item.links.empty() && !(item.rate > 0)) {
        throw std::logic_error(fmt::format("item '{}' has bytes and no link", item.name));
      }
      if (!item.weights.empty() && item.weights.size() != item.links.size()) {
        throw std::logic_error(fmt::format("item '{}' has not one weight a link", item.name));
      }
    }
  }

  SimulationResult run() {
    for (size_t i = 0; i < pending_.size(); ++i) {
      if (pending_[i] == 0) become_ready(static_cast<int>(i));
    }
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      if (event.version != flows_[event.item].version) continue;
      now_ = event.time;
      if (event.moment == Moment::delay_over) {
        begin_flow(event.item);
      } else {
        finish(event.item);
      }
    }
    if (finished_ != input_.items.size()) {
      const auto stuck = std::find(started_.begin(), started_.end(), false) - started_.begin();
      throw std::logic_error(fmt::format("item '{}' can never start", input_.items[stuck].name));
    }
    result_.seconds = now_;
    return std::move(result_);
  }

 private:
  void become_ready(int id) {
    const int lane = input_.items[id].lane;
    if (lane < 0) {
      if (acquire(id)) start(id);
      return;
    }
    if (!input_.lanes[lane].ordered) lanes_[lane].ready.insert(id);
    advance(lane);
  }

  // Starts what the lane can run next, if it is free.
  void advance(int lane) {
    LaneState& state = lanes_[lane];
    if (state.busy) return;
    if (input_.lanes[lane].ordered) {
      if (state.next == state.items.size()) return;
      const int id = state.items[state.next];
      if (pending_[id] > 0 || !acquire(id)) return;
      ++state.next;
      state.busy = true;
      start(id);
      return;
    }
    for (const int id : state.ready) {
      if (!acquire(id)) continue;
      state.ready.erase(id);
      state.busy = true;
      start(id);
      return;
    }
  }

  bool acquire(int id) {
    const std::vector<int>& wanted = input_.items[id].acquire;
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (counters_.at(wanted[i]) > 0) {
        --counters_[wanted[i]];
        continue;
      }
      for (size_t j = 0; j < i; ++j) ++counters_[wanted[j]];
      waiting_[wanted[i]].push_back(id);
      return false;
    }
    return true;
  }

  void change_memory(int id, bool at_end) {
    for (const MemoryChange& change : input_.items[id].memory) {
      if (change.at_end != at_end) continue;
      double& level = level_.at(change.device);
      level += change.bytes;
      result_.peak_memory[change.device] = std::max(result_.peak_memory[change.device], level);
      result_.memory[change.device].push_back({now_, level});
    }
  }

  void schedule(double time, int id, Moment moment) {
    events_.push({time, sequence_++, id, flows_[id].version, moment});
  }

  void start(int id) {
    const SimulationItem& item = input_.items[id];
    started_[id] = true;
    result_.start[id] = now_;
    change_memory(id, false);
    schedule(now_ + item.seconds, id, item.bytes > 0 ? Moment::delay_over : Moment::ended);
  }

  void begin_flow(int id) {
    flows_[id].remaining = input_.items[id].bytes;
    flows_[id].since = now_;
    for (const int link : input_.items[id].links) active_.at(link).push_back(id);
    share_anew(id);
  }

  // Flows that share a link with `id` go slower or faster from now on.
  void share_anew(int id) {
    std::set<int> affected = {id};
    for (const int link : input_.items[id].links) {
      affected.insert(active_[link].begin(), active_[link].end());
    }
    for (const int flow : affected) {
      if (flows_[flow].remaining > 0) set_rate(flow);
    }
  }

  void set_rate(int id) {
    const SimulationItem& item = input_.items[id];
    double rate = item.rate > 0 ? item.rate : std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < item.links.size(); ++i) {
      const auto link = static_cast<size_t>(item.links[i]);
      const double share = input_.links[link].bandwidth / static_cast<double>(active_[link].size());
      rate = std::min(rate, share / weight_of(item, i));
    }
    Flow& flow = flows_[id];
    if (rate == flow.rate) return;
    flow.remaining -= flow.rate * (now_ - flow.since);
    flow.remaining = std::max(flow.remaining, std::numeric_limits<double>::min());
    flow.since = now_;
    flow.rate = rate;
    ++flow.version;
    schedule(now_ + flow.remaining / rate, id, Moment::ended);
  }

  void end_flow(int id) {
    flows_[id].remaining = 0;
    const SimulationItem& item = input_.items[id];
    for (size_t i = 0; i < item.links.size(); ++i) {
      const auto link = static_cast<size_t>(item.links[i]);
      std::erase(active_[link], id);
      result_.link_bytes[link] += item.bytes * weight_of(item, i);
    }
    share_anew(id);
  }

  void finish(int id) {
    const SimulationItem& item = input_.items[id];
    if (item.bytes > 0) end_flow(id);
    ++finished_;
    result_.end[id] = now_;
    change_memory(id, true);
    for (const int counter : item.release) give_back(counter);
    for (const int follower : followers_[id]) {
      if (--pending_[follower] == 0) become_ready(follower);
    }
    if (item.lane >= 0) {
      lanes_[item.lane].busy = false;
      result_.lane_busy[item.lane] += now_ - result_.start[id];
      advance(item.lane);
    }
  }

  void give_back(int counter) {
    ++counters_.at(counter);
    std::vector<int> hopeful;
    hopeful.swap(waiting_[counter]);
    for (const int id : hopeful) {
      if (started_[id]) continue;
      if (input_.items[id].lane >= 0) {
        advance(input_.items[id].lane);
      } else if (acquire(id)) {
        start(id);
      }
    }
  }

  const SimulationInput& input_;
  std::vector<int> pending_;
  std::vector<bool> started_;
  std::vector<std::vector<int>> followers_;
  std::vector<Flow> flows_;
  std::vector<LaneState> lanes_;
  std::vector<int> counters_;
  std::vector<std::vector<int>> waiting_;  // items that found a counter at 0
  std::vector<std::vector<int>> active_;   // flows of each link
  std::vector<double> level_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  int64_t sequence_ = 0;
  size_t finished_ = 0;
  double now_ = 0;
  SimulationResult result_;
};

}  // namespace

double SimulationResult::idle_share(int lane) const {
  return seconds > 0 ? 1 - lane_busy.at(static_cast<size_t>(lane)) / seconds : 0;
}

SimulationResult simulate(const SimulationInput& input) { return Simulator(input).run(); }

}  // namespace millrace::simulate
