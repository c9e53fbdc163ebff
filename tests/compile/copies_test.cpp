// What a stage's program sends, receives and copies, and where it stands.
#include "compile/copies.h"

#include <gtest/gtest.h>

#include "compile/compiler.h"
#include "compile/program_text.h"
#include "models/models.h"
#include "parallel/partition.h"

namespace millrace::compile {
namespace {

// Of the instructions of a task that do not compute.
std::string moves_of(const Program& program, parallel::Work work) {
  const TaskRange& task = program.task(work);
  std::string text;
  for (size_t i = task.begin; i < task.end; ++i) {
    const Instruction& one = program.instructions[i];
    if (one.is_of_message()) text += std::string(name_of(one.kind)) + " " + one.name + ", ";
    if (!one.is_of_message() && (text.empty() || !text.ends_with("... "))) text += "... ";
  }
  return text;
}

class CopiesTest : public ::testing::Test {
 protected:
  CopiesTest() {
    models::ModelOptions options = models::default_options("alexnet");
    options.batch = 4;
    network_ = models::build_model("alexnet", options);
    stages_ = parallel::assign_by_share(network_, {1, 1, 1});
    request_.devices = {{0}, {1, 2}, {3}};
    request_.edges = parallel::edges_between(network_, stages_);
    request_.channels = {{0, 1, 2}, {1, 0, 2}, {1, 2, 2}, {2, 1, 2}, {0, 2, 3}, {2, 0, 3}};
  }

  Program compile(int stage, int member, int versions = 1, bool split = false) const {
    CompileOptions options;
    options.kernels.convolution = kernels::ConvolutionAlgorithm::direct;
    options.updates.accumulate = true;
    options.shape = {
        .phasing = Phasing::micro_batches,
        .slots = 2,
        .versions = versions,
        .channels = parallel::ends_of(parallel::routes_between(request_), stage, member),
        .split_backward = split};
    return compile_stage(parallel::cut(network_, stages_, stage), options);
  }

  graph::Graph network_;
  std::vector<int> stages_;
  parallel::RouteRequest request_;
};

TEST_F(CopiesTest, TasksBeginWithWhatTheyReceiveAndEndWithWhatTheySend) {
  request_.round_robin = true;
  const std::string before = request_.edges.front().name;
  const std::string behind = request_.edges.back().name;
  ASSERT_EQ(request_.edges.size(), 2u);
  for (const bool split : {false, true}) {
    const Program program = compile(1, 1, 1, split);
    EXPECT_EQ(moves_of(program, parallel::Work::forward), "receive " + before + ", copy " + before +
                                                              ", ... copy " + behind + ", send " +
                                                              behind + ", ");
    EXPECT_EQ(moves_of(program, split ? parallel::Work::backward_input : parallel::Work::backward),
              "receive " + behind + ".grad, copy " + behind + ".grad, ... copy " + before +
                  ".grad, send " + before + ".grad, ");
    if (split) {
      EXPECT_EQ(moves_of(program, parallel::Work::backward_weights), "... ");
    }
    EXPECT_EQ(moves_of(program, parallel::Work::update), "... ");
    size_t end = 0;
    for (const TaskRange& task : program.tasks) {
      EXPECT_EQ(task.begin, end) << "every instruction belongs to one task";
      end = task.end;
    }
    EXPECT_EQ(end, program.instructions.size());
  }
}

TEST_F(CopiesTest, MessagesSayTheirBytesTheirBuffersAndTheirTurn) {
  request_.round_robin = true;
  const Program program = compile(0, 0);
  int sends = 0;
  for (const Instruction& one : program.instructions) {
    if (!one.is_of_message()) continue;
    const parallel::RouteEnd& end = program.channels.at(static_cast<size_t>(one.channel));
    const bool sent = one.kind == InstructionKind::send;
    sends += sent ? 1 : 0;
    EXPECT_FALSE(one.layer.empty());
    EXPECT_EQ(one.turn, (parallel::Turn{2, end.peer_device() - 1})) << "devices 1 and 2 take turns";
    if (!one.exchanges()) {
      EXPECT_EQ(one.bytes_touched, 2 * end.route.bytes);
      continue;
    }
    EXPECT_EQ(one.exchanged_bytes, end.route.bytes);
    EXPECT_EQ(one.inputs.size(), sent ? 1u : 0u);
    const Address& buffer = sent ? one.inputs.at(0) : one.outputs.at(0);
    EXPECT_EQ(buffer, (Address{ArenaRegion::channels, end.offset}));
  }
  EXPECT_EQ(sends, 2) << "one to each of the devices that take turns";
  EXPECT_NE(to_text(program).find("to device 2, micro-batches 1 of every 2"), std::string::npos);
}

TEST_F(CopiesTest, EveryParameterIsCopiedOnceBeforeItsUpdate) {
  request_.round_robin = true;
  const Program one = compile(0, 0, 1);
  for (const Instruction& instruction : one.instructions) {
    EXPECT_FALSE(instruction.copies_version()) << instruction.name;
  }
  const Program two = compile(0, 0, 2);
  std::vector<Address> copied, updated;
  for (const Instruction& instruction : two.instructions) {
    if (instruction.phase != graph::Phase::update) continue;
    for (const Address& address : instruction.inputs) {
      if (address.region != ArenaRegion::weights) continue;
      auto& list = instruction.copies_version() ? copied : updated;
      if (!instruction.copies_version() &&
          std::find(copied.begin(), copied.end(), address) == copied.end()) {
        ADD_FAILURE() << instruction.name << " reads an old version";
      }
      if (std::find(list.begin(), list.end(), address) == list.end()) list.push_back(address);
    }
  }
  EXPECT_GT(copied.size(), 2u);
  EXPECT_EQ(copied, updated);
}

TEST_F(CopiesTest, ATensorOfOtherRowsIsRefused) {
  EXPECT_THROW(compile(1, 0), std::logic_error) << "the stage was not cut into parts";
}

TEST(OrderText, NamesTasksAndRows) {
  const std::vector<parallel::RowTask> order = {{0, {parallel::Work::forward, 0, 0}},
                                                {1, {parallel::Work::backward_input, 0, 0}},
                                                {1, {parallel::Work::backward_weights, 0, 0}},
                                                {0, {parallel::Work::update, 3, 0}}};
  EXPECT_EQ(order_text(order, false), "order: F0 B0 W0 U3\n");
  EXPECT_EQ(order_text(order, true), "order: F0/0 B0/1 W0/1 U3/0\n");
}

}  // namespace
}  // namespace millrace::compile
