// Which devices a job, or a stage of it, runs on. Plain values.
//
// Written as node:devices, joined by commas: "0:0-6,1:0-7" is devices 0 to 6 of node 0 and then 0
// to 7 of node 1. Stages are joined by dots: "0:0-6.0:7".
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::parallel {

struct DeviceId {
  int node = 0;
  int device = 0;

  auto operator<=>(const DeviceId&) const = default;
};

// An ordered set of devices: the place of a device in it is its member number.
struct Placement {
  std::vector<DeviceId> devices;

  int size() const { return static_cast<int>(devices.size()); }
  bool operator==(const Placement&) const = default;
};

inline constexpr int kMostNodes = 4096;
inline constexpr int kMostDevicesPerNode = 1024;
inline constexpr int kMostDevices = 65536;

// Takes any bytes; throws InputError with a sentence that starts with `source` ("‹placement›") and
// says at which character what is wrong. No device may appear twice in a placement; stages may
// share devices.
std::vector<Placement> parse_stages(std::string_view text, std::string_view source = "‹placement›");

// The shortest spelling, which parses back to the same value. A device is "0:3".
std::string to_string(const DeviceId& device);
std::string to_string(const Placement& placement);
std::string to_string(const std::vector<Placement>& stages);

}  // namespace millrace::parallel
