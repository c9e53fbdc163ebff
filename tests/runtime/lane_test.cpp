#include "runtime/lane.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <thread>

#include "base/error.h"
#include "comm/local_group.h"
#include "runtime/input_gate.h"

namespace millrace::runtime {
namespace {

constexpr int64_t kBytes = 64;

// Both ends of one route, in one process.
class Ends {
 public:
  explicit Ends(size_t send_slots = 1, size_t receive_slots = 2)
      : groups_(comm::make_local_groups(2)),
        device_({.threads = 1}),
        memory_(device_.allocate(static_cast<int64_t>(send_slots + receive_slots) * kBytes)),
        stream_(device_.make_stream(backend::StreamKind::direct)) {
    LaneOptions sender = {.name = "x",
                          .layer = "x",
                          .group = groups_[0],
                          .peer = 1,
                          .tag = 3,
                          .buffers = {},
                          .bytes = kBytes,
                          .bell = &bell_};
    LaneOptions receiver = {.name = "x",
                            .layer = "x",
                            .group = groups_[1],
                            .peer = 0,
                            .tag = 3,
                            .buffers = {},
                            .bytes = kBytes,
                            .bell = &bell_};
    for (size_t i = 0; i < send_slots + receive_slots; ++i) {
      (i < send_slots ? sender : receiver)
          .buffers.push_back(memory_->begin() + static_cast<int64_t>(i) * kBytes);
    }
    send = std::make_unique<SendLane>(device_, sender);
    receive = std::make_unique<ReceiveLane>(device_, receiver);
  }

  void put(int value) {
    const std::vector<std::byte> message(kBytes, static_cast<std::byte>(value));
    stream_->give(backend::command::Write{message.data(), send->reserve(*stream_), kBytes});
    send->commit(*stream_);
  }

  int take() {
    std::vector<std::byte> message(kBytes);
    stream_->give(backend::command::Read{receive->front(*stream_), message.data(), kBytes});
    const int first = static_cast<int>(message[0]);
    EXPECT_EQ(static_cast<int>(message[kBytes - 1]), first);
    receive->pop(*stream_);
    return first;
  }

  template <typename Condition>
  void wait_until(Condition&& condition) {
    while (true) {
      const int64_t known = bell_.rings();
      if (condition()) return;
      bell_.wait(known);
    }
  }

  std::vector<comm::Group> groups_;
  backend::Device device_;
  std::unique_ptr<backend::Region> memory_;
  std::unique_ptr<backend::Stream> stream_;
  Bell bell_;
  std::unique_ptr<SendLane> send;
  std::unique_ptr<ReceiveLane> receive;
};

TEST(Lane, MessagesArriveInOrder) {
  Ends ends(2, 3);
  ends.receive->expect(100);
  std::thread producer([&] {
    for (int i = 0; i < 100; ++i) ends.put(i);
    ends.send->drain();
  });
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ends.take(), i);
  producer.join();
}

TEST(Lane, AFullRingHoldsTheSenderUp) {
  Ends ends(1, 2);
  ends.receive->expect(10);
  for (int i = 0; i < 3; ++i) ends.put(i);
  // Two have gone over, the third waits in the sender's only buffer.
  ends.wait_until([&] { return ends.receive->is_ready(); });
  EXPECT_FALSE(ends.send->has_room());
  EXPECT_EQ(ends.take(), 0);
  ends.wait_until([&] { return ends.send->has_room(); });
  EXPECT_EQ(ends.take(), 1);
  EXPECT_EQ(ends.take(), 2);
  EXPECT_FALSE(ends.receive->is_ready());
  for (int i = 3; i < 10; ++i) {
    ends.put(i);
    EXPECT_EQ(ends.take(), i);
  }
}

TEST(Lane, TakesNoMoreThanExpected) {
  Ends ends(1, 2);
  ends.receive->expect(1);
  ends.put(1);
  EXPECT_EQ(ends.take(), 1);
  ends.put(2);
  EXPECT_FALSE(ends.receive->is_ready());
  EXPECT_FALSE(ends.send->has_room());
  ends.receive->expect(1);
  EXPECT_EQ(ends.take(), 2);
}

TEST(Lane, AFailedGroupIsToldToTheCaller) {
  Ends ends;
  ends.receive->expect(1);
  ends.groups_[0].fail("it was unplugged");
  EXPECT_THROW(ends.receive->front(*ends.stream_), JobError);
  EXPECT_THROW(ends.receive->is_ready(), JobError);
  ends.put(1);
  EXPECT_THROW(ends.send->drain(), JobError);
}

TEST(Lane, OneThatEndsUnderWayReleasesTheOtherEnd) {
  Ends ends;
  ends.put(1);
  std::thread other([&] { EXPECT_THROW(ends.send->drain(), JobError); });
  Ends unrelated;
  unrelated.receive->expect(1);
  unrelated.receive.reset();
  unrelated.put(1);
  EXPECT_THROW(unrelated.send->drain(), JobError);
  ends.groups_[1].fail("it has ended");
  other.join();
}

TEST(InputGate, WaitsBothWays) {
  Bell bell;
  InputGate gate(bell);
  gate.open(2);
  std::vector<int> slots(2, -1);
  std::thread feeder([&] {
    for (int i = 0; i < 50; ++i) {
      gate.wait_for_slot(i);
      slots[static_cast<size_t>(i % 2)] = i;
      gate.written(i);
    }
  });
  for (int i = 0; i < 50; ++i) {
    gate.wait_for_input(i);
    EXPECT_EQ(slots[static_cast<size_t>(i % 2)], i);
    gate.release(i, {});
  }
  feeder.join();
  std::thread waiting([&] { EXPECT_THROW(gate.wait_for_slot(52), JobError); });
  gate.close();
  EXPECT_THROW(gate.wait_for_input(50), JobError);
  waiting.join();
}

}  // namespace
}  // namespace millrace::runtime
