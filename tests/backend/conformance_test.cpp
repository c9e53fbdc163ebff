// What every backend must do, whenever its streams run.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "backend/device.h"
#include "base/error.h"
#include "comm/local_group.h"

namespace millrace::backend {
namespace {

constexpr int64_t kCount = 1000;
constexpr int64_t kBytes = kCount * 4;

std::vector<float> numbers(float first) {
  std::vector<float> values(kCount);
  std::iota(values.begin(), values.end(), first);
  return values;
}

// Adds the learning rate of its step to each value of its input.
class Adding final : public kernels::Kernel {
 public:
  void run(const kernels::KernelArguments& a) override {
    for (int64_t i = 0; i < kCount; ++i) {
      a.output<float>(0)[i] = a.input<float>(0)[i] + a.step->learning_rate;
    }
  }
};

class Failing final : public kernels::Kernel {
 public:
  void run(const kernels::KernelArguments&) override { throw std::runtime_error("it burns"); }
};

class Backends : public ::testing::TestWithParam<BackendSettings> {
 protected:
  Backends()
      : device_({.threads = 1, .backend = make_backend(GetParam())}),
        memory_(device_.allocate(4 * kBytes)),
        first_(device_.make_stream(StreamKind::direct)),
        second_(device_.make_stream(StreamKind::background)) {}

  DeviceAddress place(int number) const { return memory_->begin() + number * kBytes; }

  void write(const std::vector<float>& values, int number, Stream& stream) {
    stream.give(command::Write{values.data(), place(number), kBytes});
  }
  std::vector<float> read(int number, Stream& stream) {
    std::vector<float> values(kCount, -1);
    stream.give(command::Read{place(number), values.data(), kBytes});
    stream.finish();
    return values;
  }

  Device device_;
  std::unique_ptr<Region> memory_;
  std::unique_ptr<Stream> first_;
  std::unique_ptr<Stream> second_;
};

TEST_P(Backends, MemoryStartsAsZeros) {
  EXPECT_EQ(memory_->bytes(), 4 * kBytes);
  EXPECT_EQ(memory_->resident_bytes(), 0);
  EXPECT_EQ(read(3, *first_), std::vector<float>(kCount, 0));
  const std::unique_ptr<Region> large = device_.allocate(64 << 20);
  const std::vector<std::byte> ones(64 << 20, std::byte{1});
  first_->give(command::Write{ones.data(), large->begin(), 64 << 20});
  first_->finish();
  EXPECT_EQ(large->resident_bytes(), 64 << 20);
}

TEST_P(Backends, AStreamKeepsItsOrder) {
  Adding adding;
  const std::vector<float> values = numbers(5);
  write(values, 0, *first_);
  first_->give(command::Copy{place(0), place(1), kBytes});
  for (int i = 0; i < 100; ++i) {
    const kernels::StepState step = {.learning_rate = static_cast<float>(i)};
    const DeviceAddress at = place(1);
    first_->give(
        command::Launch{.kernel = &adding, .inputs = {&at, 1}, .outputs = {&at, 1}, .step = &step});
  }
  first_->give(command::Scale{place(0), kCount, 2});
  EXPECT_EQ(read(1, *first_), numbers(5 + 4950));
  std::vector<float> doubled = values;
  for (float& value : doubled) value *= 2;
  EXPECT_EQ(read(0, *first_), doubled);
}

TEST_P(Backends, ScalingByZeroClears) {
  write(std::vector<float>(kCount, INFINITY), 0, *first_);
  first_->finish();
  first_->give(command::Scale{place(0), kCount, 0});
  EXPECT_EQ(read(0, *first_), std::vector<float>(kCount, 0));
}

TEST_P(Backends, EventsOrderStreams) {
  for (int round = 0; round < 50; ++round) {
    const std::vector<float> values = numbers(static_cast<float>(round));
    write(values, 0, *first_);
    const Event written = first_->record();
    second_->await(written);
    second_->give(command::Copy{place(0), place(1), kBytes});
    const Event copied = second_->record();
    first_->await(copied);
    first_->give(command::Copy{place(1), place(2), kBytes});
    first_->give(command::Scale{place(1), kCount, 0});
    second_->await(first_->record());
    EXPECT_EQ(read(2, *second_), values);
    EXPECT_TRUE(written.is_done());
    EXPECT_TRUE(copied.is_done());
  }
}

TEST_P(Backends, BellsRingInTheirTurn) {
  Bell bell;
  const std::vector<float> values = numbers(1);
  write(values, 0, *second_);
  second_->give(command::Ring{&bell});
  const Event rung = second_->record();
  while (!rung.is_done()) std::this_thread::yield();
  EXPECT_EQ(bell.rings(), 1);
}

TEST_P(Backends, TensorsChangeTheirLayout) {
  kernels::TensorSpec tensor;
  tensor.type.shape = {1, 10, 10, 10};
  tensor.layout = graph::Layout("acdb");
  const std::vector<float> values = numbers(0);
  first_->give(command::Write{values.data(), place(0), 0, &tensor});
  std::vector<float> back(kCount, -1);
  first_->give(command::Read{place(0), back.data(), 0, &tensor});
  const std::vector<float> stored = read(0, *first_);
  EXPECT_EQ(back, values);
  EXPECT_EQ(stored[1], values[100]);
}

TEST_P(Backends, AFailureIsToldOnceAndEndsWhatFollows) {
  Failing failing;
  const std::vector<float> values = numbers(1);
  const auto fail = [&] {
    first_->give(command::Launch{.kernel = &failing});
    first_->give(command::Scale{place(0), kCount, 0});
    first_->finish();
  };
  write(values, 0, *first_);
  first_->finish();
  EXPECT_THROW(fail(), std::runtime_error);
  EXPECT_EQ(read(0, *first_), values) << "what follows a failure must not run";
  first_->give(command::Scale{place(0), kCount, 0});
  EXPECT_EQ(read(0, *first_), std::vector<float>(kCount, 0)) << "what comes later must";
}

TEST_P(Backends, WhoAwaitsAFailureFails) {
  Failing failing;
  Bell bell;
  second_->give(command::Launch{.kernel = &failing});
  second_->give(command::Ring{&bell});
  const Event failed = second_->record();
  const auto follow = [&] {
    first_->await(failed);
    first_->finish();
  };
  EXPECT_THROW(follow(), std::runtime_error);
  EXPECT_THROW(failed.wait(), std::runtime_error);
  EXPECT_EQ(bell.rings(), 1) << "bells ring all the same";
}

TEST_P(Backends, MembersSumAndDivideAndTalk) {
  const std::vector<comm::Group> groups = comm::make_local_groups(2);
  const std::vector<comm::Group> lines = comm::make_local_groups(2);
  std::vector<std::vector<float>> results(2);
  const auto backend = make_backend(GetParam());
  const auto work = [&](size_t member) {
    const auto sums = join(groups[member]);
    const auto messages = join(lines[member]);
    Device device({.threads = 1, .backend = backend});
    const auto memory = device.allocate(3 * kBytes);
    const auto compute = device.make_stream(StreamKind::direct);
    const auto lane = device.make_stream(StreamKind::background);
    const DeviceAddress own = memory->begin();
    const DeviceAddress whole = own + kBytes;
    const DeviceAddress message = whole + kBytes;
    const std::vector<float> values = numbers(member == 0 ? 1.0f : 2.0f);
    const int peer = member == 0 ? 1 : 0;
    compute->give(command::Write{values.data(), own, kBytes});
    compute->give(command::AllReduce{sums.get(), own, kCount, graph::DataType::f32});
    compute->give(command::ReduceScatter{sums.get(), own, whole + (member == 0 ? 0 : kBytes / 2),
                                         kCount, 1, graph::DataType::f32});
    compute->give(
        command::AllGather{sums.get(), whole + (member == 0 ? 0 : kBytes / 2), whole, kBytes, 4});
    lane->await(compute->record());
    if (member == 0) lane->give(command::Send{messages.get(), peer, whole, kBytes, 1});
    if (member == 1) lane->give(command::Receive{messages.get(), peer, message, kBytes, 1});
    compute->await(lane->record());
    results[member].resize(kCount);
    const DeviceAddress shown = member == 0 ? whole : message;
    compute->give(command::Read{shown, results[member].data(), kBytes});
    compute->finish();
  };
  std::thread other([&] { work(1); });
  work(0);
  other.join();
  for (const std::vector<float>& result : results) {
    for (int64_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(result[static_cast<size_t>(i)], 2 * static_cast<float>(2 * i + 3));
    }
  }
}

TEST_P(Backends, AStreamThatEndsRunsWhatItWasGiven) {
  const std::vector<float> values = numbers(3);
  write(values, 0, *second_);
  second_.reset();
  EXPECT_EQ(read(0, *first_), values);
}

std::string name(const ::testing::TestParamInfo<BackendSettings>& info) {
  constexpr const char* kOrders[] = {"eager", "lazy", "random"};
  if (info.param.kind == BackendSettings::Kind::cpu) return "cpu";
  return kOrders[static_cast<size_t>(info.param.order)] + std::to_string(info.param.seed);
}

INSTANTIATE_TEST_SUITE_P(
    All, Backends,
    ::testing::Values(
        BackendSettings{},
        BackendSettings{BackendSettings::Kind::strict, BackendSettings::Order::eager, 0},
        BackendSettings{BackendSettings::Kind::strict, BackendSettings::Order::lazy, 0},
        BackendSettings{BackendSettings::Kind::strict, BackendSettings::Order::random, 1},
        BackendSettings{BackendSettings::Kind::strict, BackendSettings::Order::random, 2}),
    name);

}  // namespace
}  // namespace millrace::backend
