// That the strict backend forgives nothing.
#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>

#include "backend/device.h"
#include "backend/raw.h"
#include "backend/strict/strict_backend.h"

namespace millrace::backend {
namespace {

using Order = BackendSettings::Order;

std::shared_ptr<Backend> strict(Order order, uint64_t seed = 0) {
  return make_strict_backend({BackendSettings::Kind::strict, order, seed, /*checks=*/false});
}

float value_after(Stream& stream, DeviceAddress address) {
  float value = -1;
  stream.give(command::Read{address, &value, 4});
  stream.finish();
  return value;
}

TEST(StrictDeathTest, AddressesCannotBeFollowed) {
  const auto memory = strict(Order::lazy)->allocate(4096);
  EXPECT_DEATH(
      {
        volatile std::byte seen = *raw(memory->begin(), 0);
        (void)seen;
      },
      "");
  EXPECT_DEATH(std::memset(raw(memory->begin(), 0), 1, 1), "");
}

TEST(Strict, LateIsAfterTheHostWentOn) {
  const auto backend = strict(Order::lazy);
  const auto memory = backend->allocate(4096);
  const auto stream = backend->make_stream({});
  float value = 1;
  stream->give(command::Write{&value, memory->begin(), 4});
  value = 2;  // a fault: the write has not been waited for
  EXPECT_EQ(value_after(*stream, memory->begin()), 2);
}

TEST(Strict, LateRunsWhatIsNeededAlone) {
  const auto backend = strict(Order::lazy);
  const auto memory = backend->allocate(4096);
  const auto first = backend->make_stream({});
  const auto second = backend->make_stream({});
  const float value = 1;
  first->give(command::Write{&value, memory->begin(), 4});
  // A fault: nothing says that the second stream has to wait.
  EXPECT_EQ(value_after(*second, memory->begin()), 0);
  second->await(first->record());
  EXPECT_EQ(value_after(*second, memory->begin()), 1);
}

TEST(Strict, EagerRunsByItself) {
  const auto backend = strict(Order::eager);
  const auto memory = backend->allocate(4096);
  const auto stream = backend->make_stream({.kind = StreamKind::background});
  Bell bell;
  stream->give(command::Ring{&bell});
  bell.wait(0);
}

TEST(Strict, RandomOrdersDiffer) {
  std::vector<std::string> orders;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const auto backend = strict(Order::random, seed);
    const auto memory = backend->allocate(4096);
    std::vector<std::unique_ptr<Stream>> streams;
    for (int i = 0; i < 4; ++i) streams.push_back(backend->make_stream({}));
    // Each writes over the same place: the last one is seen.
    const float values[] = {0, 1, 2, 3};
    std::string order;
    for (int round = 0; round < 8; ++round) {
      for (size_t i = 0; i < 4; ++i) {
        streams[i]->give(command::Write{&values[i], memory->begin(), 4});
      }
      for (size_t i = 0; i < 4; ++i) streams[i]->finish();
      order += std::to_string(static_cast<int>(value_after(*streams[0], memory->begin())));
    }
    orders.push_back(order);
  }
  std::sort(orders.begin(), orders.end());
  EXPECT_GT(std::unique(orders.begin(), orders.end()) - orders.begin(), 1);
}

// Of streams that check; the order in which they run makes no difference.
std::shared_ptr<Backend> checked() { return make_strict_backend({BackendSettings::Kind::strict}); }

TEST(StrictLedger, StreamsThatTouchTheSameNeedAnEvent) {
  const auto backend = checked();
  const auto memory = backend->allocate(4096);
  const auto first = backend->make_stream({});
  const auto second = backend->make_stream({});
  float value = 1;
  first->give(command::Write{&value, memory->begin(), 4});
  const command::Read read = {memory->begin(), &value, 4};
  EXPECT_THROW(second->give(read), std::logic_error);
  EXPECT_NO_THROW(second->give(command::Read{memory->begin() + 4, &value, 4}));
  second->await(first->record());
  EXPECT_NO_THROW(second->give(read));
  second->finish();
}

TEST(StrictLedger, KnowsWhatOthersHaveWaitedFor) {
  const auto backend = checked();
  const auto memory = backend->allocate(4096);
  const auto first = backend->make_stream({});
  const auto second = backend->make_stream({});
  const auto third = backend->make_stream({});
  float value = 1;
  const command::Write write = {&value, memory->begin(), 4};
  first->give(write);
  second->await(first->record());
  third->await(second->record());
  EXPECT_NO_THROW(third->give(command::Read{memory->begin(), &value, 4}));
  EXPECT_THROW(first->give(write), std::logic_error);
  third->finish();
  EXPECT_NO_THROW(first->give(write));
  first->finish();
}

TEST(StrictLedger, KernelsReadTheirOwnBuffers) {
  struct Nothing : kernels::Kernel {
    void run(const kernels::KernelArguments&) override {}
  };
  Nothing kernel;
  const auto backend = checked();
  const auto memory = backend->allocate(4096);
  const auto stream = backend->make_stream({});
  const auto give = [&](int64_t in, int read, int64_t out, int written) {
    const DeviceAddress from = memory->begin() + in;
    const DeviceAddress to = memory->begin() + out;
    const kernels::Extent extents[] = {{64, read}, {64, written}, {}};
    stream->give(command::Launch{
        .kernel = &kernel, .inputs = {&from, 1}, .outputs = {&to, 1}, .extents = extents});
  };
  EXPECT_NO_THROW(give(0, 1, 64, 2));
  EXPECT_NO_THROW(give(64, 2, 128, 3));
  EXPECT_THROW(give(64, 4, 192, 5), std::logic_error);   // buffer 2 lies there
  EXPECT_THROW(give(128, 3, 160, 6), std::logic_error);  // over what it reads itself
  EXPECT_NO_THROW(give(128, 3, 128, 3));                 // on purpose
  EXPECT_NO_THROW(give(0, 1, 96, 7));                    // over half of buffer 2
  EXPECT_THROW(give(64, 2, 256, 8), std::logic_error);
  stream->finish();
}

}  // namespace
}  // namespace millrace::backend
