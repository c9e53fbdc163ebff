#include "backend/strict/strict_ledger.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/parts.h"

namespace millrace::backend {
namespace {

void join(std::vector<int64_t>& clock, const std::vector<int64_t>& other) {
  if (clock.size() < other.size()) clock.resize(other.size(), 0);
  for (size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

void join(std::vector<int64_t>& clock, uint64_t stream, int64_t number) {
  if (clock.size() <= stream) clock.resize(stream + 1, 0);
  clock[stream] = std::max(clock[stream], number);
}

int64_t at(const std::vector<int64_t>& clock, uint64_t stream) {
  return stream < clock.size() ? clock[stream] : 0;
}

std::string_view name_of(const Command& command) {
  if (const auto* launch = std::get_if<command::Launch>(&command)) {
    return launch->name.empty() ? "a kernel" : launch->name;
  }
  constexpr std::string_view kNames[] = {
      "a kernel",         "a copy",        "a read", "a write",   "a scaling", "an all-reduce",
      "a reduce-scatter", "an all-gather", "a send", "a receive", "a bell",    "a wait"};
  return kNames[command.index()];
}

}  // namespace

std::vector<StrictLedger::Use> StrictLedger::uses_of(const Command& command) {
  std::vector<Use> uses;
  const auto reads = [&](DeviceAddress begin, int64_t bytes) { uses.push_back({begin, bytes}); };
  const auto writes = [&](DeviceAddress begin, int64_t bytes, bool keeps = false) {
    uses.push_back({begin, bytes, kernels::Extent::kAnyone, true, keeps});
  };
  if (const auto* launch = std::get_if<command::Launch>(&command)) {
    if (launch->extents.empty()) return {};
    auto extent = launch->extents.begin();
    const auto add = [&](DeviceAddress begin, bool written) {
      if (extent->bytes > 0) {
        uses.push_back({begin, extent->bytes, extent->buffer, written || extent->written, false});
      }
      ++extent;
    };
    for (const DeviceAddress input : launch->inputs) add(input, false);
    for (const DeviceAddress output : launch->outputs) add(output, true);
    add(launch->workspace, true);
  } else if (const auto* copy = std::get_if<command::Copy>(&command)) {
    if (copy->from == copy->to) return {};
    reads(copy->from, copy->bytes);
    writes(copy->to, copy->bytes);
  } else if (const auto* read = std::get_if<command::Read>(&command)) {
    reads(read->from, read->tensor == nullptr ? read->bytes : read->tensor->bytes());
  } else if (const auto* write = std::get_if<command::Write>(&command)) {
    writes(write->to, write->tensor == nullptr ? write->bytes : write->tensor->bytes());
  } else if (const auto* scale = std::get_if<command::Scale>(&command)) {
    writes(scale->values, scale->count * static_cast<int64_t>(sizeof(float)), true);
  } else if (const auto* sum = std::get_if<command::AllReduce>(&command)) {
    writes(sum->values, sum->count * static_cast<int64_t>(sizeof(float)), true);
  } else if (const auto* scatter = std::get_if<command::ReduceScatter>(&command)) {
    const Communicator& others = *scatter->communicator;
    const int64_t part =
        part_size(scatter->count / scatter->block, others.member(), others.members()) *
        scatter->block;
    reads(scatter->whole, scatter->count * static_cast<int64_t>(sizeof(float)));
    writes(scatter->part, part * static_cast<int64_t>(sizeof(float)));
  } else if (const auto* gather = std::get_if<command::AllGather>(&command)) {
    const Communicator& others = *gather->communicator;
    const int64_t part =
        part_size(gather->bytes / gather->block_bytes, others.member(), others.members()) *
        gather->block_bytes;
    reads(gather->part, part);
    writes(gather->whole, gather->bytes);
  } else if (const auto* send = std::get_if<command::Send>(&command)) {
    reads(send->data, send->bytes);
  } else if (const auto* receive = std::get_if<command::Receive>(&command)) {
    writes(receive->data, receive->bytes);
  }
  std::erase_if(uses, [](const Use& use) { return use.bytes == 0; });
  return uses;
}

std::string StrictLedger::conflict_within(const std::vector<Use>& uses, std::string_view name) {
  for (const Use& one : uses) {
    for (const Use& other : uses) {
      const bool known =
          one.buffer != kernels::Extent::kAnyone && other.buffer != kernels::Extent::kAnyone;
      if (!one.written || !known || one.buffer == other.buffer) continue;
      if (one.begin < other.begin + other.bytes && other.begin < one.begin + one.bytes) {
        return fmt::format("'{}' writes where another of its operands lies", name);
      }
    }
  }
  return "";
}

std::string_view StrictLedger::keep(std::string_view name) {
  const auto known = names_.find(name);
  return known != names_.end() ? *known : *names_.insert(std::string(name)).first;
}

// From the first command on that is given after the host has waited, a stream knows what it knows.
void StrictLedger::refresh(uint64_t stream, int64_t number) {
  std::deque<Moment>& moments = moments_[stream];
  const bool knows = !moments.empty() && moments.back().known.size() >= host_.size() &&
                     std::equal(host_.begin(), host_.end(), moments.back().known.begin(),
                                std::less_equal<int64_t>());
  if (!knows) join(known_from(stream, number), host_);
  while (moments.size() > 1 && moments[1].from <= at(host_, stream)) moments.pop_front();
}

StrictLedger::Clock& StrictLedger::known_from(uint64_t stream, int64_t number) {
  std::deque<Moment>& moments = moments_[stream];
  if (moments.empty()) {
    moments.push_back({number, {}});
  } else if (moments.back().from < number) {
    moments.push_back({number, moments.back().known});
  }
  return moments.back().known;
}

void StrictLedger::await(uint64_t stream, int64_t number, uint64_t other, int64_t event) {
  if (event <= 0) return;
  Clock& known = known_from(stream, number);
  join(known, other, event);
  const std::deque<Moment>& theirs = moments_[other];
  const auto behind =
      std::upper_bound(theirs.begin(), theirs.end(), event,
                       [](int64_t value, const Moment& moment) { return value < moment.from; });
  if (behind != theirs.begin()) join(known, std::prev(behind)->known);
}

void StrictLedger::wait(uint64_t stream, int64_t number) {
  if (number <= at(host_, stream)) return;
  join(host_, stream, number);
  const std::deque<Moment>& theirs = moments_[stream];
  const auto behind =
      std::upper_bound(theirs.begin(), theirs.end(), number,
                       [](int64_t value, const Moment& moment) { return value < moment.from; });
  if (behind != theirs.begin()) join(host_, std::prev(behind)->known);
}

void StrictLedger::forget(DeviceAddress begin, int64_t bytes) {
  split(begin);
  split(begin + bytes);
  cells_.erase(cells_.lower_bound(begin), cells_.lower_bound(begin + bytes));
}

void StrictLedger::split(DeviceAddress place) {
  auto cell = cells_.upper_bound(place);
  if (cell == cells_.begin()) return;
  --cell;
  if (cell->first == place || cell->second.end <= place) return;
  Cell behind = cell->second;
  cell->second.end = place;
  cells_.emplace(place, std::move(behind));
}

bool StrictLedger::is_over(const Access& access, uint64_t stream) const {
  if (access.number == 0 || access.stream == stream) return true;
  const auto moments = moments_.find(stream);
  return moments != moments_.end() && !moments->second.empty() &&
         access.number <= at(moments->second.back().known, access.stream);
}

std::string StrictLedger::read(const Use& use, const Access& access) {
  const DeviceAddress end = use.begin + use.bytes;
  split(use.begin);
  split(end);
  for (auto one = cells_.lower_bound(use.begin); one != cells_.end() && one->first < end; ++one) {
    Cell& cell = one->second;
    if (!is_over(cell.writer, access.stream)) {
      return fmt::format("'{}' may read before '{}' has written", access.name, cell.writer.name);
    }
    if (use.buffer != kernels::Extent::kAnyone && cell.buffer != kernels::Extent::kAnyone &&
        cell.buffer != use.buffer) {
      return fmt::format("'{}' reads a buffer that '{}' has written over", access.name,
                         cell.writer.name);
    }
    const auto same = std::find_if(cell.readers.begin(), cell.readers.end(),
                                   [&](const Access& a) { return a.stream == access.stream; });
    if (same == cell.readers.end()) {
      cell.readers.push_back(access);
    } else {
      *same = access;
    }
  }
  return "";
}

std::string StrictLedger::write(const Use& use, const Access& access) {
  const DeviceAddress end = use.begin + use.bytes;
  split(use.begin);
  split(end);
  for (auto one = cells_.lower_bound(use.begin); one != cells_.end() && one->first < end;) {
    const Cell& cell = one->second;
    if (!is_over(cell.writer, access.stream)) {
      return fmt::format("'{}' may write before '{}' has", access.name, cell.writer.name);
    }
    for (const Access& reader : cell.readers) {
      if (is_over(reader, access.stream)) continue;
      return fmt::format("'{}' may write before '{}' has read", access.name, reader.name);
    }
    if (use.keeps_buffer) {
      one->second.writer = access;
      one->second.readers.clear();
      ++one;
    } else {
      one = cells_.erase(one);
    }
  }
  if (!use.keeps_buffer) cells_.emplace(use.begin, Cell{end, access, use.buffer, {}});
  return "";
}

std::string StrictLedger::give(uint64_t stream, int64_t number, const Command& command) {
  refresh(stream, number);
  const std::vector<Use> uses = uses_of(command);
  if (uses.empty()) return "";
  const Access access = {stream, number, keep(name_of(command))};
  std::string wrong = conflict_within(uses, access.name);
  for (const Use& use : uses) {
    if (wrong.empty() && !use.written) wrong = read(use, access);
  }
  for (const Use& use : uses) {
    if (wrong.empty() && use.written) wrong = write(use, access);
  }
  return wrong;
}

}  // namespace millrace::backend
