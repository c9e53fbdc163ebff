// A described cluster: equal machines, each with equal devices, and the links between them.
//
// Plain data. One that `parse_cluster` or its like made has been checked: numbers are
// positive and finite, and the matrix of links fits.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "graph/types.h"

namespace millrace::simulate {

// What one device can do, by its data sheet.
struct DeviceKind {
  std::string name;
  double memory_bytes = 0;
  double fp32_operations = 0;   // per second, a multiply and an add counted apart
  double fp16_operations = 0;   // with products summed in float32
  double bf16_operations = 0;   // 0: the device has no bfloat16
  double memory_bandwidth = 0;  // bytes per second, read and written together
  double tf32_operations = 0;   // of tensor cores that take float32; 0: there are none

  // The rate for a type; bfloat16 falls back to float32 where the device has none.
  double operations(graph::DataType type) const;
};

// Links of one class, in one direction.
struct LinkClass {
  double bandwidth = 0;  // bytes per second
  double latency = 0;    // seconds
};

// Links of a machine: links[i][j] names the class that joins device i and device j ("X" is the
// device itself); "NV2" is two bonded links of class "NV".
using LinkMatrix = std::vector<std::vector<std::string>>;

// Every device with every other, all of one class.
LinkMatrix equal_links(int devices, const std::string& link);

// "NV12" → 12; 0 for every other class.
int bonded_links(std::string_view link);

// The class of such a link: "NV12" → "NV".
std::string class_of(const std::string& link);

struct Cluster {
  std::string name;
  std::string source;  // where the numbers come from
  int machines = 1;
  int devices_per_machine = 1;
  DeviceKind device;
  std::map<std::string, LinkClass> classes;
  LinkMatrix links;              // of every machine
  LinkClass network;             // of one machine, to others like it; no bandwidth: not known
  int host_cores = 0;            // of one machine, for reading and decoding images; 0: not known
  double host_memory_bytes = 0;  // of one machine; 0: not known
  bool devices_in_host_memory = false;  // processors: the devices of a machine share its memory

  int devices() const { return machines * devices_per_machine; }

  // What joins two devices, counted through the whole cluster: the class of their link with the
  // bandwidth of bonded links added up, or the network. `from` and `to` differ.
  LinkClass link_between(int from, int to) const;
};

}  // namespace millrace::simulate
