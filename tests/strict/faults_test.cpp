// Every mistake of an executor must be seen on the strict backend, in its first order: as other
// bits, an error, a crash or a standstill. Each is tried in a process of its own.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>

#include "../parallel/networks.h"
#include "base/random.h"
#include "faulty_backend.h"
#include "pipeline.h"

namespace millrace::testing {
namespace {

constexpr int kLives = 12;         // of buffers, that end early on each device
constexpr int kPatience = 10'000;  // milliseconds

std::shared_ptr<backend::Backend> strict(backend::BackendSettings::Order order, uint64_t seed = 0) {
  return backend::make_backend({backend::BackendSettings::Kind::strict, order, seed});
}

std::shared_ptr<backend::Backend> lazy() { return strict(backend::BackendSettings::Order::lazy); }

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
    if (::freopen("/dev/null", "w", stdout) == nullptr) ::_exit(1);
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

// A buffer that takes the memory of another one while that is still read.
struct EarlyReuse {
  int dead = 0;
  int born = 0;
};

template <typename Visit>
void for_each_operand(compile::Instruction& instruction, Visit&& visit) {
  for (compile::Address& input : instruction.inputs) visit(input);
  for (compile::Address& output : instruction.outputs) visit(output);
  visit(instruction.workspace);
}

// Of buffers that begin where others end; evenly chosen.
std::vector<EarlyReuse> early_reuses(compile::Program& program) {
  struct Life {
    size_t first = 0;
    size_t last = 0;
    compile::ArenaRegion region = compile::ArenaRegion::scratch;
  };
  std::map<int, Life> lives;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    for_each_operand(program.instructions[i], [&](const compile::Address& operand) {
      const bool lives_on = operand.region != compile::ArenaRegion::scratch &&
                            operand.region != compile::ArenaRegion::saved;
      if (operand.extent.bytes == 0 || lives_on) return;
      lives.insert({operand.extent.buffer, {i, i, operand.region}}).first->second.last = i;
    });
  }
  std::vector<EarlyReuse> all;
  for (const auto& [dead, old] : lives) {
    for (const auto& [born, young] : lives) {
      const bool meet = old.last == young.first && old.first < old.last;
      if (dead != born && meet && old.region == young.region) all.push_back({dead, born});
    }
  }
  std::vector<EarlyReuse> chosen;
  const size_t count = std::min<size_t>(kLives, all.size());
  for (size_t i = 0; i < count; ++i) chosen.push_back(all[i * all.size() / count]);
  return chosen;
}

void reuse_early(compile::Program& program, const EarlyReuse& reuse) {
  int64_t offset = -1;
  const auto find = [&](const compile::Address& operand) {
    if (operand.extent.bytes > 0 && operand.extent.buffer == reuse.dead) offset = operand.offset;
  };
  const auto move = [&](compile::Address& operand) {
    if (operand.extent.bytes > 0 && operand.extent.buffer == reuse.born) operand.offset = offset;
  };
  for (compile::Instruction& one : program.instructions) for_each_operand(one, find);
  for (compile::Instruction& one : program.instructions) for_each_operand(one, move);
  for (compile::Slot& slot : program.inputs) move(slot.address);
  for (compile::Slot& slot : program.results) move(slot.address);
}

class Faults {
 public:
  explicit Faults(PipelineSpec spec) : spec_(std::move(spec)) {
    expected_ = in_a_process([&] { return std::to_string(result_of(spec_, nullptr)); });
  }

  bool is_seen(const Fault& fault) const {
    return expected_ != in_a_process([&] {
             return std::to_string(
                 result_of(spec_, std::make_shared<FaultyBackend>(lazy(), fault)));
           });
  }
  bool is_right(const std::shared_ptr<backend::Backend>& backend) const {
    return expected_ == in_a_process([&] { return std::to_string(result_of(spec_, backend)); });
  }

  std::vector<Fault> possible() const {
    const std::string text = in_a_process([&] {
      const auto backend = std::make_shared<FaultyBackend>(lazy(), Fault{});
      result_of(spec_, backend);
      std::string list;
      for (const Fault& fault : backend->possible()) {
        list += fmt::format("{} {} {}\n", static_cast<int>(fault.kind), fault.who, fault.whom);
      }
      return list;
    });
    std::vector<Fault> faults;
    int kind = 0;
    Fault fault;
    for (const char* place = text.c_str(); *place != 0; place = std::strchr(place, '\n') + 1) {
      if (std::sscanf(place, "%d %d %d", &kind, &fault.who, &fault.whom) != 3) continue;
      fault.kind = static_cast<Fault::Kind>(kind);
      faults.push_back(fault);
    }
    return faults;
  }

  // How many early reuses there may be on each device, and whether one is seen.
  std::vector<size_t> lives() const {
    std::vector<size_t> counts;
    PipelineSpec spec = spec_;
    spec.spoil = [&](int device, compile::Program& program) {
      counts.resize(std::max(counts.size(), static_cast<size_t>(device) + 1), 0);
      counts[static_cast<size_t>(device)] = early_reuses(program).size();
    };
    const std::string text = in_a_process([&] {
      const TestPipeline pipeline(spec);
      std::string list;
      for (const size_t count : counts) list += static_cast<char>(count);
      return list;
    });
    return {text.begin(), text.end()};
  }
  bool is_seen(int spoilt, size_t number) const {
    PipelineSpec spec = spec_;
    spec.spoil = [&](int device, compile::Program& program) {
      if (device == spoilt) reuse_early(program, early_reuses(program).at(number));
    };
    return expected_ != in_a_process([&] {
             return std::to_string(
                 result_of(spec, std::make_shared<FaultyBackend>(lazy(), Fault{})));
           });
  }

  const std::string& expected() const { return expected_; }

 private:
  PipelineSpec spec_;
  std::string expected_;
};

struct Tally {
  std::map<std::string, std::pair<int, int>> seen;  // of how many, by kind
  std::string missed;

  void note(const std::string& kind, bool is_seen, const std::string& where) {
    auto& [found, all] = seen[kind];
    ++all;
    found += is_seen ? 1 : 0;
    if (!is_seen) missed += fmt::format("\n{}: {}", kind, where);
  }
};

TEST(StrictFaults, AreSeen) {
  Tally tally;
  const std::vector<PipelineSpec> specs = {
      spec_of(alexnet_like(8), {{0, 1}, {2}}, parallel::ScheduleKind::gpipe, 4, 2),
      spec_of(vgg_like(6), {{0}, {1}}, parallel::ScheduleKind::one_f_one_b_flush, 6, 2)};
  for (const PipelineSpec& spec : specs) {
    const Faults faults(spec);
    ASSERT_NE(faults.expected(), "");
    ASSERT_TRUE(faults.is_right(std::make_shared<FaultyBackend>(lazy(), Fault{})));
    ASSERT_TRUE(faults.is_right(strict(backend::BackendSettings::Order::eager)));
    ASSERT_TRUE(faults.is_right(strict(backend::BackendSettings::Order::random, 1)));
    for (const Fault& fault : faults.possible()) {
      tally.note(std::string(name_of(fault.kind)), faults.is_seen(fault),
                 fmt::format("{} stages, {} and {}", spec.devices.size(), fault.who, fault.whom));
    }
    const std::vector<size_t> lives = faults.lives();
    for (size_t device = 0; device < lives.size(); ++device) {
      for (size_t i = 0; i < lives[device]; ++i) {
        tally.note("short life", faults.is_seen(static_cast<int>(device), i),
                   fmt::format("{} stages, device {}, {}", spec.devices.size(), device, i));
      }
    }
  }
  int seen = 0;
  int count = 0;
  for (const auto& [kind, sums] : tally.seen) {
    std::printf("%-12s %3d of %3d\n", kind.c_str(), sums.first, sums.second);
    seen += sums.first;
    count += sums.second;
  }
  std::printf("%d of %d mistakes were seen%s\n", seen, count, tally.missed.c_str());
  EXPECT_GE(count, 20);
  EXPECT_GE(seen, 0.95 * count) << tally.missed;
}

}  // namespace
}  // namespace millrace::testing
