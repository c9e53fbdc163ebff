#include "simulate/cluster.h"

#include <algorithm>
#include <charconv>

namespace millrace::simulate {

double DeviceKind::operations(graph::DataType type) const {
  if (type == graph::DataType::f16 && fp16_operations > 0) return fp16_operations;
  if (type == graph::DataType::bf16 && bf16_operations > 0) return bf16_operations;
  return fp32_operations;
}

int bonded_links(std::string_view link) {
  constexpr size_t kMostDigits = 4;
  if (!link.starts_with("NV") || link.size() > 2 + kMostDigits) return 0;
  int count = 0;
  const char* const end = link.data() + link.size();
  const auto [rest, error] = std::from_chars(link.data() + 2, end, count);
  return error == std::errc() && rest == end ? std::max(0, count) : 0;
}

std::string class_of(const std::string& link) { return bonded_links(link) > 0 ? "NV" : link; }

LinkMatrix equal_links(int devices, const std::string& link) {
  const auto count = static_cast<size_t>(devices);
  LinkMatrix links(count, std::vector<std::string>(count, link));
  for (size_t i = 0; i < count; ++i) links[i][i] = std::string("X");
  return links;
}

LinkClass Cluster::link_between(int from, int to) const {
  if (from / devices_per_machine != to / devices_per_machine) return network;
  const auto row = static_cast<size_t>(from % devices_per_machine);
  const auto column = static_cast<size_t>(to % devices_per_machine);
  const std::string& joint = links.at(row).at(column);
  LinkClass link = classes.at(class_of(joint));
  link.bandwidth *= std::max(1, bonded_links(joint));
  return link;
}

}  // namespace millrace::simulate
