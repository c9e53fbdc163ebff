// Members' graphs compiled as they will run: fused, with the kernels' own layouts, in place,
// recomputed.
#include <gtest/gtest.h>

#include "compile/compiler.h"
#include "devices.h"
#include "networks.h"

namespace millrace::testing {
namespace {

// A program in an arena of its own.
class Machine {
 public:
  Machine(const Graph& graph, const Graph& whole, const std::map<std::string, Values>& values)
      : program_(compile_training(graph, options())),
        arena_(static_cast<uint64_t>(program_.arena_bytes)) {
    const auto write = [&](const Slot& slot) {
      if (slot.role == Role::optimizer_state) return;
      const Shape& shape = whole.tensor(whole.find_tensor(slot.name)).type.shape;
      const int64_t size =
          slot.slice.axis == kNone ? 0 : slot.type.shape[static_cast<size_t>(slot.slice.axis)];
      const Storage packed =
          pack(part_of(values.at(slot.name), shape, slot.slice, size), {slot.type, slot.layout});
      std::copy_n(packed.data(), slot.bytes, at(slot.address));
    };
    for (const Slot& slot : program_.state) write(slot);
    for (const Slot& slot : program_.inputs) write(slot);
  }

  const Program& program() const { return program_; }

  void run(Collectives* collectives) {
    const StepState step = {.seed = 7, .step = 3, .learning_rate = 0.05f};
    for (const Instruction& instruction : program_.instructions) {
      const auto inputs = pointers(instruction.inputs);
      const auto outputs = pointers(instruction.outputs);
      instruction.kernel->run(
          {inputs, outputs, at(instruction.workspace), &step, collectives});
    }
  }

  static CompileOptions options() {
    CompileOptions options;
    options.recompute = RecomputePolicy::all;
    return options;
  }

  Values read(const Slot& slot) const {
    const TensorSpec spec = {slot.type, slot.layout};
    Storage copy(static_cast<uint64_t>(slot.bytes));
    std::copy_n(at(slot.address), slot.bytes, copy.data());
    return unpack(copy, spec);
  }

 private:
  std::byte* at(const Address& address) const {
    return const_cast<std::byte*>(arena_.data()) + program_.memory.begin(address.region) +
           address.offset;
  }

  std::vector<std::byte*> pointers(const std::vector<Address>& addresses) {
    std::vector<std::byte*> list;
    for (const Address& address : addresses) list.push_back(at(address));
    return list;
  }

  Program program_;
  Storage arena_;
};

void compare(const Graph& forward, const ShardingPolicy& policy, int members) {
  SCOPED_TRACE(std::string(name_of(policy.parallelism)) + " over " + std::to_string(members));
  const auto values = first_values(forward);
  Machine alone(forward, forward, values);
  alone.run(nullptr);

  const ShardedGraph sharded = shard(forward, policy, members);
  std::vector<Machine> machines;
  for (int m = 0; m < members; ++m) machines.emplace_back(localize(sharded, m), forward, values);
  run_together(members, [&](int member, Collectives& collectives) {
    machines[static_cast<size_t>(member)].run(&collectives);
  });

  const auto parts = [&](auto&& slot_of) {
    std::vector<Values> list;
    for (const Machine& machine : machines) list.push_back(machine.read(slot_of(machine)));
    return list;
  };
  for (const char* name : {"loss", "top1", "top5"}) {
    const Values expected = alone.read(alone.program().result(name));
    const Values together = joined(parts([&](const Machine& machine) -> const Slot& {
                                     return machine.program().result(std::string(name) + ".total");
                                   }),
                                   {1}, broadcast());
    EXPECT_LT(relative_error(together, expected), 1e-5) << name;
  }
  // Gradients of split parameters are complete, so their updates are those of one device.
  int compared = 0;
  for (size_t i = 0; i < alone.program().state.size(); ++i) {
    const Slot& slot = alone.program().state[i];
    const auto same = [i](const Machine& machine) -> const Slot& {
      return machine.program().state.at(i);
    };
    ASSERT_EQ(same(machines[0]).name, slot.name);
    const int axis = same(machines[0]).slice.axis;
    if (axis == kNone) continue;
    ++compared;
    EXPECT_LT(relative_error(joined(parts(same), slot.type.shape, split(axis)), alone.read(slot)),
              1e-5)
        << slot.name;
  }
  EXPECT_EQ(compared > 1, policy.parallelism != Parallelism::data);
}

void compare_all(const Graph& forward) {
  for (Parallelism parallelism : {Parallelism::data, Parallelism::model, Parallelism::hybrid}) {
    compare(forward, {parallelism, {}, true}, 3);
  }
}

TEST(Programs, AlexnetLike) { compare_all(alexnet_like(7)); }
TEST(Programs, VggLike) { compare_all(vgg_like(7)); }
TEST(Programs, ResnetLike) { compare_all(resnet_like(7)); }

}  // namespace
}  // namespace millrace::testing
