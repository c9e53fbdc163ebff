// Speed of conversions between float32 and 16 bits: conversion_bench [MEBIBYTES] [ROUNDS].
//
// Converts an array of that many MiB of float32 (256) there and back, and copies with memcpy as
// many bytes as the conversion reads and writes; the team and the way of dividing are the same.
// They take turns, medians are compared. Prints one JSON object; `share` is the conversion's speed
// over the copy's.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "base/json.h"
#include "base/parallel.h"
#include "kernels/support/conversion.h"

namespace millrace {
namespace {

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void copy_bytes(const std::byte* from, std::byte* to, int64_t bytes) {
  constexpr int64_t kLine = 4096;
  parallel_ranges((bytes + kLine - 1) / kLine, 1, [&](int, int64_t begin, int64_t end) {
    const int64_t first = begin * kLine;
    std::memcpy(to + first, from + first,
                static_cast<size_t>(std::min(bytes, end * kLine) - first));
  });
}

Json compare(const char* name, int64_t bytes_moved, int rounds, const std::function<void()>& body) {
  std::vector<std::byte> from(static_cast<size_t>(bytes_moved / 2), std::byte{1});
  std::vector<std::byte> to(from.size());
  std::vector<double> converting;
  std::vector<double> copying;
  for (int round = 0; round <= rounds; ++round) {
    const double own = seconds_of(body);
    const double peer =
        seconds_of([&] { copy_bytes(from.data(), to.data(), static_cast<int64_t>(from.size())); });
    if (round == 0) continue;
    converting.push_back(own);
    copying.push_back(peer);
  }
  const double own = median(converting);
  const auto bytes = static_cast<double>(bytes_moved);
  return {{"conversion", name},
          {"seconds", own},
          {"gigabytes_per_second", bytes / own / 1e9},
          {"copy_gigabytes_per_second", bytes / median(copying) / 1e9},
          {"share", median(copying) / own}};
}

int run(int64_t mebibytes, int rounds) {
  const int64_t count = (mebibytes << 20) / int64_t{sizeof(float)};
  std::vector<float> values(static_cast<size_t>(count));
  std::vector<std::byte> stored(static_cast<size_t>(count) * 2);
  for (int64_t i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)] = static_cast<float>(i % 2001 - 1000) * 0.01f;
  }
  Json results = Json::array();
  for (const graph::DataType type : {graph::DataType::f16, graph::DataType::bf16}) {
    const bool is_f16 = type == graph::DataType::f16;
    results.push_back(compare(is_f16 ? "float32 to fp16" : "float32 to bf16", count * 6, rounds,
                              [&] { kernels::narrow(type, values.data(), count, stored.data()); }));
    results.push_back(compare(is_f16 ? "fp16 to float32" : "bf16 to float32", count * 6, rounds,
                              [&] { kernels::widen(type, stored.data(), count, values.data()); }));
  }
  const Json json = {{"mebibytes", mebibytes}, {"threads", team_size()}, {"results", results}};
  std::printf("%s\n", json.dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int count, char** arguments) {
  const int64_t mebibytes = count > 1 ? std::atoll(arguments[1]) : 256;
  const int rounds = count > 2 ? std::atoi(arguments[2]) : 9;
  if (mebibytes < 1 || rounds < 1) {
    std::fprintf(stderr, "conversion_bench: write conversion_bench MEBIBYTES ROUNDS.\n");
    return 2;
  }
  return millrace::run(mebibytes, rounds);
}
