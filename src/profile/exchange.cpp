#include "profile/exchange.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <thread>
#include <vector>

#include "base/median.h"
#include "base/parallel.h"
#include "comm/local_group.h"
#include "profile/measure.h"

namespace millrace::profile {
namespace {

constexpr size_t kElements = size_t{1} << 23;  // 32 MiB, beyond the caches
constexpr int kRepeats = 7;
constexpr int kTag = 1;
constexpr int kSmallRepeats = 20;
constexpr std::chrono::milliseconds kNoPause{0};
constexpr std::chrono::milliseconds kPause{1};  // in which a waiting thread's core falls asleep

// A message wakes the thread that sends for a device, the one that receives for the other, and
// that device.
constexpr double kWoken = 3;

template <typename Work>
double median_seconds(int repeats, Work&& work, std::chrono::milliseconds pause = kNoPause) {
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    std::this_thread::sleep_for(pause);
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    seconds.push_back(elapsed.count());
  }
  return median(seconds);
}

// Sends there and gets one byte back; the sender pauses before each.
double message_seconds(comm::Group& group, std::span<std::byte> data, int repeats,
                       std::chrono::milliseconds pause = kNoPause) {
  std::byte answer{};
  const std::span<std::byte> small(&answer, 1);
  const auto there_and_back = [&] {
    if (group.rank() == 0) {
      group.send(1, std::span<const std::byte>(data), kTag);
      group.receive(1, small, kTag);
    } else if (group.rank() == 1) {
      group.receive(0, data, kTag);
      group.send(0, std::span<const std::byte>(small), kTag);
    }
  };
  return median_seconds(repeats, there_and_back, group.rank() == 0 ? pause : kNoPause);
}

ExchangeSpeed measure_member(comm::Group& group) {
  std::vector<float> values(kElements, 1.0f);
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(values));
  const auto n = static_cast<double>(group.size());
  ExchangeSpeed speed;
  group.all_reduce(std::span(values));
  std::fill(values.begin(), values.end(), 0.0f);
  const double small = message_seconds(group, bytes.first(4), kSmallRepeats);
  const double asleep = message_seconds(group, bytes.first(4), kSmallRepeats, kPause);
  const double large = message_seconds(group, bytes, kRepeats);
  // There to one that sleeps, back to one that has just begun to wait.
  speed.message.latency = kWoken * std::max(small / 2, asleep - small / 2);
  speed.message.bandwidth = static_cast<double>(bytes.size()) / std::max(1e-9, large - small);
  const double little =
      median_seconds(kSmallRepeats, [&] { group.all_reduce(std::span(values).first(1)); });
  const double sum = median_seconds(kRepeats, [&] { group.all_reduce(std::span(values)); });
  speed.collective_latency = little;
  speed.collective_rate =
      2 * (n - 1) / n * static_cast<double>(bytes.size()) / std::max(1e-9, sum - little);
  return speed;
}

}  // namespace

ExchangeSpeed measure_local_exchange(int members) {
  std::vector<comm::Group> groups = comm::make_local_groups(std::max(2, members), {});
  std::vector<ExchangeSpeed> speeds(groups.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < groups.size(); ++i) {
    threads.emplace_back([&, i] {
      set_team_size(1);
      speeds[i] = measure_member(groups[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return speeds[0];
}

ExchangeSpeed measure_exchange(comm::Group& group) { return measure_member(group); }

}  // namespace millrace::profile
