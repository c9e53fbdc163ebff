// That the strict backend forgives nothing.
#include <gtest/gtest.h>

#include <cstring>

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

}  // namespace
}  // namespace millrace::backend
