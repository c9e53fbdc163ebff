#include "parallel/placement.h"

#include <set>

#include "base/error.h"

namespace millrace::parallel {
namespace {

class Parser {
 public:
  Parser(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  std::vector<Placement> stages() {
    if (text_.empty()) {
      fail_input("{} is empty; name devices as node:devices, for example 0:0-3.", source_);
    }
    std::vector<Placement> result = {placement()};
    while (take('.')) result.push_back(placement());
    if (at_ != text_.size())
      fail("has unexpected text", "use ',' between devices and '.' between stages");
    return result;
  }

 private:
  Placement placement() {
    Placement result;
    seen_.clear();
    do {
      range(result);
    } while (take(','));
    return result;
  }

  void range(Placement& result) {
    const int node = number(kMostNodes, "node");
    if (!take(':')) fail("lacks a ':'", "write node:devices, for example 0:0-3");
    const size_t start = at_;
    const int first = number(kMostDevicesPerNode, "device");
    const int last = take('-') ? number(kMostDevicesPerNode, "device") : first;
    if (last < first) {
      at_ = start;
      fail("has a range that runs backwards", fmt::format("write {}-{}", last, first));
    }
    for (int device = first; device <= last; ++device) {
      if (!seen_.insert({node, device}).second) {
        at_ = start;
        fail(fmt::format("names device {}:{} a second time", node, device), "name each once");
      }
      result.devices.push_back({node, device});
    }
    if (seen_.size() > kMostDevices) {
      fail_input("{} names more than {} devices.", source_, kMostDevices);
    }
  }

  int number(int limit, std::string_view what) {
    const size_t start = at_;
    int value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      value = value * 10 + (text_[at_] - '0');
      if (value >= limit) {
        at_ = start;
        fail(fmt::format("has a {} number that is too large", what),
             fmt::format("numbers go up to {}", limit - 1));
      }
    }
    if (at_ == start) {
      fail(fmt::format("lacks a {} number", what), "write node:devices, for example 0:0-3");
    }
    return value;
  }

  bool take(char wanted) {
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  [[noreturn]] void fail(std::string_view what, std::string_view remedy) const {
    fail_input("{} {} at character {}; {}.", source_, what, at_ + 1, remedy);
  }

  std::string_view text_;
  std::string_view source_;
  size_t at_ = 0;
  std::set<DeviceId> seen_;
};

}  // namespace

std::vector<Placement> parse_stages(std::string_view text, std::string_view source) {
  return Parser(text, source).stages();
}

std::string to_string(const DeviceId& device) {
  return fmt::format("{}:{}", device.node, device.device);
}

std::string to_string(const Placement& placement) {
  std::string text;
  for (size_t i = 0; i < placement.devices.size();) {
    const DeviceId first = placement.devices[i];
    DeviceId last = first;
    for (++i; i < placement.devices.size(); ++i) {
      if (placement.devices[i] != DeviceId{last.node, last.device + 1}) break;
      last = placement.devices[i];
    }
    if (!text.empty()) text += ',';
    text += to_string(first);
    if (last != first) text += fmt::format("-{}", last.device);
  }
  return text;
}

std::string to_string(const std::vector<Placement>& stages) {
  std::string text;
  for (const Placement& stage : stages) {
    if (!text.empty()) text += '.';
    text += to_string(stage);
  }
  return text;
}

}  // namespace millrace::parallel
