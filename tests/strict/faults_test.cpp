// Every wait that is left out of a pipeline, and every look of the host at a device's memory, must
// be seen on the strict backend: as other bits, an error, a crash or a standstill. Each is tried in
// a process of its own.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "../parallel/networks.h"
#include "base/random.h"
#include "forgetful_backend.h"
#include "pipeline.h"

namespace millrace::testing {
namespace {

constexpr Wait kNothing = {-2, -2};
constexpr uint64_t kSeeds = 8;     // random orders that are tried if no other one shows it
constexpr int kAccesses = 6;       // by the host, of each kind
constexpr int kPatience = 10'000;  // milliseconds

backend::BackendSettings strict(backend::BackendSettings::Order order, uint64_t seed) {
  return {backend::BackendSettings::Kind::strict, order, seed};
}

// Losses and weights after two segments, as a number.
uint64_t result_of(PipelineSpec spec, const std::shared_ptr<backend::Backend>& backend) {
  spec.backend = backend;
  TestPipeline pipeline(spec);
  pipeline.train();
  pipeline.train();
  uint64_t hash = 0;
  const auto add = [&](const void* data, size_t bytes) {
    hash = hash_combine(hash, hash_bytes(data, bytes));
  };
  add(pipeline.losses().data(), pipeline.losses().size() * sizeof(double));
  for (const auto& [name, values] : pipeline.weights()) {
    add(values.data(), values.size() * sizeof(float));
  }
  return hash;
}

// What `work` writes to a file descriptor in a process of its own; nothing where that process
// failed or did not end.
template <typename Work>
std::string in_a_process(Work&& work) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    std::string text;
    try {
      text = work();
    } catch (...) {
      ::_exit(1);
    }
    const bool written = ::write(ends[1], text.data(), text.size()) == std::ssize(text);
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text;
  pollfd waiting = {ends[0], POLLIN, 0};
  while (::poll(&waiting, 1, kPatience) == 1) {
    char buffer[4096];
    const ssize_t count = ::read(ends[0], buffer, sizeof(buffer));
    if (count <= 0) break;
    text.append(buffer, static_cast<size_t>(count));
  }
  ::close(ends[0]);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  return text;
}

class Faults {
 public:
  explicit Faults(PipelineSpec spec) : spec_(std::move(spec)) {
    expected_ = in_a_process([&] { return std::to_string(result_of(spec_, nullptr)); });
  }

  std::string run(const backend::BackendSettings& settings, const Wait& forgotten) const {
    return in_a_process([&] {
      return std::to_string(result_of(
          spec_, std::make_shared<ForgetfulBackend>(backend::make_backend(settings), forgotten)));
    });
  }

  std::vector<Wait> waits() const {
    const std::string text = in_a_process([&] {
      const auto backend = std::make_shared<ForgetfulBackend>(
          backend::make_backend(strict(backend::BackendSettings::Order::lazy, 0)), kNothing);
      result_of(spec_, backend);
      std::string list;
      for (const Wait& wait : backend->asked()) list += fmt::format("{} {}\n", wait.who, wait.whom);
      return list;
    });
    std::vector<Wait> waits;
    for (const char* place = text.c_str(); *place != 0; place = std::strchr(place, '\n') + 1) {
      Wait wait;
      if (std::sscanf(place, "%d %d", &wait.who, &wait.whom) == 2) waits.push_back(wait);
    }
    return waits;
  }

  // Whether any order shows that this wait is missing.
  bool are_seen(const Wait& forgotten) const {
    if (run(strict(backend::BackendSettings::Order::lazy, 0), forgotten) != expected_) return true;
    const auto whom = static_cast<uint64_t>(std::max(0, forgotten.whom));
    if (run(strict(backend::BackendSettings::Order::slow, whom), forgotten) != expected_)
      return true;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      if (run(strict(backend::BackendSettings::Order::random, seed), forgotten) != expected_)
        return true;
    }
    return false;
  }

  const std::string& expected() const { return expected_; }

 private:
  PipelineSpec spec_;
  std::string expected_;
};

TEST(StrictFaults, AreSeen) {
  size_t count = 0;
  size_t seen = 0;
  std::string missed;
  // All forwards before all backwards: with any other schedule the order of tasks itself makes some
  // of the waits needless.
  const std::vector<PipelineSpec> specs = {
      spec_of(alexnet_like(8), {{0, 1}, {2}}, parallel::ScheduleKind::gpipe, 4, 2),
      spec_of(vgg_like(6), {{0}, {1}}, parallel::ScheduleKind::gpipe, 6, 2)};
  for (const PipelineSpec& spec : specs) {
    const Faults faults(spec);
    ASSERT_NE(faults.expected(), "");
    ASSERT_EQ(faults.run(strict(backend::BackendSettings::Order::lazy, 0), kNothing),
              faults.expected());
    std::vector<Wait> mistakes = faults.waits();
    for (int i = 0; i < kAccesses; ++i) {
      mistakes.push_back({Wait::kHostReads, i});
      mistakes.push_back({Wait::kHostWrites, i});
    }
    for (const Wait& wait : mistakes) {
      ++count;
      if (faults.are_seen(wait)) {
        ++seen;
      } else {
        missed += fmt::format("\n{} stages: stream {} for stream {}", spec.devices.size(), wait.who,
                              wait.whom);
      }
    }
  }
  std::printf("%zu of %zu mistakes were seen%s\n", seen, count, missed.c_str());
  EXPECT_GE(count, 20u);
  EXPECT_GE(static_cast<double>(seen), 0.95 * static_cast<double>(count)) << missed;
}

}  // namespace
}  // namespace millrace::testing
