#include "report/page_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>

#include "report/device_order.h"

namespace millrace::report {
namespace {

constexpr double kMicroseconds = 1e3;
constexpr size_t kMostBins = 1500;  // of a device

int64_t beginning(const runtime::TraceLog& log) {
  int64_t first = log.events.empty() ? 0 : log.events.front().begin;
  for (const runtime::TraceEvent& event : log.events) first = std::min(first, event.begin);
  return first;
}

// `count` of `events`, which are sorted, around the window.
std::span<const runtime::TraceEvent* const> near_window(
    const std::vector<const runtime::TraceEvent*>& events, const TimeWindow& window, size_t count) {
  const auto at = [&](int64_t time) {
    return static_cast<size_t>(std::lower_bound(events.begin(), events.end(), time,
                                                [](const runtime::TraceEvent* event, int64_t t) {
                                                  return event->begin < t;
                                                }) -
                               events.begin());
  };
  const size_t middle = (at(window.begin) + at(window.end)) / 2;
  const size_t from = std::min(middle - std::min(middle, count / 2), events.size() - count);
  return std::span(events).subspan(from, count);
}

class Timeline {
 public:
  Timeline(const std::vector<TimelinePart>& parts, size_t most_events)
      : parts_(parts), events_of_part_(most_events / std::max<size_t>(1, parts.size())) {
    json_["devices"] = Json::array();
    json_["categories"] = Json::array();
    json_["events"] = Json::array();
    for (int i = 0; i < runtime::kTraceCategories; ++i) {
      json_["categories"].push_back(runtime::name_of(static_cast<runtime::TraceCategory>(i)));
    }
  }

  PageTimeline take() {
    align();
    for (size_t i = 0; i < parts_.size(); ++i) add(i);
    std::vector<std::string> names(names_.size());
    for (const auto& [name, index] : names_) names[index] = name;
    json_["names"] = names;
    json_["end"] = end_;
    if (to_ > from_ && from_ >= 0 && to_ <= end_) json_["window"] = {from_, to_};
    return {std::move(json_), std::move(note_)};
  }

 private:
  // Where the time of each part begins, so that the windows do so together.
  void align() {
    std::vector<int64_t> leads;
    for (const TimelinePart& part : parts_) {
      starts_.push_back(beginning(*part.log));
      leads.push_back(part.window.begin - starts_.back());
    }
    const int64_t longest = leads.empty() ? 0 : *std::max_element(leads.begin(), leads.end());
    for (size_t i = 0; i < parts_.size(); ++i) starts_[i] -= longest - leads[i];
    end_ = 1 / kMicroseconds;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const TimeWindow& window = parts_[i].window;
      from_ = time(i, window.begin);
      to_ = std::max(to_, time(i, window.end));
      for (const runtime::TraceEvent& event : parts_[i].log->events) {
        end_ = std::max(end_, time(i, event.end));
      }
    }
  }

  double time(size_t part, int64_t nanoseconds) const {
    return static_cast<double>(nanoseconds - starts_[part]) / kMicroseconds;
  }

  void add(size_t index) {
    const TimelinePart& part = parts_[index];
    const std::vector<size_t> order = device_order(*part.log);
    const size_t first_row = json_["devices"].size();
    const size_t rows =
        std::min(order.size(), kMostPageDevices - std::min(kMostPageDevices, first_row));
    std::vector<int> row_of(order.size(), -1);
    for (size_t i = 0; i < rows; ++i) {
      const runtime::TraceDevice& device = part.log->devices[order[i]];
      row_of[order[i]] = static_cast<int>(first_row + i);
      json_["devices"].push_back(
          {{"name", fmt::format("stage {} · {}:{}", device.stage, device.node, device.device)},
           {"group", part.group}});
    }
    if (rows < order.size()) {
      note_ += fmt::format(" {} of {} devices are shown.", rows, order.size());
    }
    std::vector<const runtime::TraceEvent*> events;
    for (const runtime::TraceEvent& event : part.log->events) {
      if (row_of.at(static_cast<size_t>(event.device)) >= 0) events.push_back(&event);
    }
    const auto earlier = [](const runtime::TraceEvent* a, const runtime::TraceEvent* b) {
      return a->begin < b->begin;
    };
    std::stable_sort(events.begin(), events.end(), earlier);
    if (events.size() <= events_of_part_) return add_events(index, events, row_of);
    const auto shown = near_window(events, part.window, events_of_part_);
    add_bins(index, events, row_of);
    const double from = time(index, shown.front()->begin), to = time(index, shown.back()->begin);
    for (size_t row = first_row; row < first_row + rows; ++row) {
      json_["devices"][row]["detail"] = {from, to};
    }
    note_ += fmt::format(
        " The trace has {} events, too many for a page: those from {:.4g} s to {:.4g} s are shown "
        "one by one, the rest as shares of time, {:.3g} s each.",
        events.size(), from / 1e6, to / 1e6, end_ / 1e6 / static_cast<double>(bins(rows)));
    add_events(index, shown, row_of);
  }

  static size_t bins(size_t rows) {
    return std::clamp(kMostPageBins / std::max<size_t>(1, rows), size_t{50}, kMostBins);
  }

  void add_events(size_t part, std::span<const runtime::TraceEvent* const> events,
                  const std::vector<int>& row_of) {
    Json& list = json_["events"];
    for (const runtime::TraceEvent* event : events) {
      const size_t name = names_.try_emplace(event->name, names_.size()).first->second;
      list.push_back({row_of[static_cast<size_t>(event->device)], static_cast<int>(event->category),
                      name, event->micro_batch, time(part, event->begin),
                      static_cast<double>(event->end - event->begin) / kMicroseconds});
    }
  }

  void add_bins(size_t part, const std::vector<const runtime::TraceEvent*>& events,
                const std::vector<int>& row_of) {
    using Shares = std::array<double, runtime::kTraceCategories>;
    const auto rows = static_cast<size_t>(
        std::count_if(row_of.begin(), row_of.end(), [](int row) { return row >= 0; }));
    const size_t count = bins(rows);
    const double length = end_ / static_cast<double>(count);
    std::map<int, std::vector<Shares>> by_row;
    for (const int row : row_of) {
      if (row >= 0) by_row[row].resize(count, Shares{});
    }
    for (const runtime::TraceEvent* event : events) {
      std::vector<Shares>& shares = by_row[row_of[static_cast<size_t>(event->device)]];
      const double begin = time(part, event->begin), end = time(part, event->end);
      for (auto i = static_cast<size_t>(begin / length); i < count; ++i) {
        const double low = static_cast<double>(i) * length;
        if (low >= end) break;
        shares[i][static_cast<size_t>(event->category)] +=
            std::min(end, low + length) - std::max(begin, low);
      }
    }
    for (const auto& [row, shares] : by_row) {
      Json list = Json::array();
      for (const Shares& share : shares) {
        for (const double spent : share) {
          list.push_back(static_cast<int>(std::min(100.0, 100 * spent / length + 0.5)));
        }
      }
      json_["devices"][static_cast<size_t>(row)]["bins"] = std::move(list);
    }
  }

  const std::vector<TimelinePart>& parts_;
  const size_t events_of_part_;
  std::vector<int64_t> starts_;
  std::map<std::string, size_t> names_;
  double end_ = 0, from_ = 0, to_ = 0;
  Json json_;
  std::string note_;
};

}  // namespace

PageTimeline page_timeline(const std::vector<TimelinePart>& parts, size_t most_events) {
  return Timeline(parts, most_events).take();
}

}  // namespace millrace::report
