// Boxing operators: what of them is done on the device. Tensors are plain. A tensor cut along an
// axis is `outer` rows, each the parts of all members one behind the other; collectives want all
// rows of the first member, then all of the second. The two orders are the same for axis 0, which
// needs no copy.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "base/parallel.h"
#include "base/parts.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/request_checks.h"

namespace millrace::kernels::boxing {
namespace {

constexpr int64_t kCopyGrain = 1 << 17;

struct Cut {
  int members;
  int64_t whole;      // extent along the axis
  int64_t outer = 1;  // rows
  int64_t inner = 1;  // elements per index along the axis
  int64_t size;       // bytes of an element

  Cut(const KernelRequest& request, const TensorSpec& tensor)
      : members(static_cast<int>(request.op.attributes.integer("members"))),
        whole(request.op.attributes.integer("whole")),
        size(graph::size_of(tensor.type.dtype)) {
    const int64_t axis = request.op.attributes.integer("axis");
    const graph::Shape& shape = tensor.type.shape;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (static_cast<int64_t>(i) < axis) outer *= shape[i];
      if (static_cast<int64_t>(i) > axis) inner *= shape[i];
    }
  }

  int64_t block() const { return outer * inner; }
  uint64_t bytes() const { return static_cast<uint64_t>(whole * block() * size); }

  // Calls copy(place among rows, place among members, bytes) for each row of each part.
  template <typename Copy>
  void each_row(Copy&& copy) const {
    const int64_t grain = kCopyGrain * members / std::max<int64_t>(whole * inner * size, 1);
    parallel_for(outer * members, grain, [&](int64_t task) {
      const auto member = static_cast<int>(task % members);
      const int64_t row = task / members;
      const int64_t begin = part_begin(whole, member, members);
      const int64_t count = part_size(whole, member, members);
      copy((row * whole + begin) * inner * size, (begin * outer + row * count) * inner * size,
           static_cast<size_t>(count * inner * size));
    });
  }
};

void copy_bytes(const std::byte* from, std::byte* to, uint64_t bytes) {
  if (from == to) return;
  parallel_ranges(static_cast<int64_t>(bytes), kCopyGrain, [=](int, int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

std::unique_ptr<Kernel> copy_of(const KernelRequest& request) {
  return make_function_kernel(
      [bytes = static_cast<uint64_t>(request.inputs[0].bytes())](const KernelArguments& arguments) {
        copy_bytes(arguments.inputs[0], arguments.outputs[0], bytes);
      });
}

bool is_float(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return false;
  if (request.inputs[0].type.dtype == graph::DataType::f32) return true;
  *refusal = "sums are made of f32";
  return false;
}

// What is summed is the output.
std::unique_ptr<Kernel> make_all_reduce(const KernelRequest& request, std::string* refusal) {
  if (!is_float(request, refusal)) return nullptr;
  return copy_of(request);
}

// Behind the exchange, which leaves the parts in the workspace.
std::unique_ptr<Kernel> make_all_gather(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const Cut cut(request, request.outputs[0]);
  if (cut.members == 1) return copy_of(request);
  return make_function_kernel(
      [cut](const KernelArguments& arguments) {
        cut.each_row([&](int64_t in_rows, int64_t in_parts, size_t bytes) {
          std::memcpy(arguments.outputs[0] + in_rows, arguments.workspace + in_parts, bytes);
        });
      },
      cut.bytes());
}

// Before the exchange, which finds the parts in the workspace.
std::unique_ptr<Kernel> make_reduce_scatter(const KernelRequest& request, std::string* refusal) {
  if (!is_float(request, refusal)) return nullptr;
  const Cut cut(request, request.inputs[0]);
  if (cut.members == 1) return copy_of(request);
  return make_function_kernel(
      [cut](const KernelArguments& arguments) {
        cut.each_row([&](int64_t in_rows, int64_t in_parts, size_t bytes) {
          std::memcpy(arguments.workspace + in_parts, arguments.inputs[0] + in_rows, bytes);
        });
      },
      cut.bytes());
}

// The whole tensor becomes the first member's share of a sum.
std::unique_ptr<Kernel> make_share_partial(const KernelRequest& request, std::string* refusal) {
  if (!is_float(request, refusal)) return nullptr;
  const bool keeps = request.op.attributes.integer("member") == 0;
  const auto bytes = static_cast<uint64_t>(request.inputs[0].bytes());
  return make_function_kernel([keeps, bytes](const KernelArguments& arguments) {
    if (keeps) return copy_bytes(arguments.inputs[0], arguments.outputs[0], bytes);
    std::memset(arguments.outputs[0], 0, bytes);
  });
}

std::unique_ptr<Kernel> make_pad_slice(const KernelRequest& request, std::string* refusal) {
  if (!is_float(request, refusal)) return nullptr;
  const auto axis = static_cast<size_t>(request.op.attributes.integer("axis"));
  const graph::Shape& part = request.inputs[0].type.shape;
  int64_t outer = 1;
  for (size_t i = 0; i < axis; ++i) outer *= part[i];
  const int64_t bytes = request.inputs[0].bytes() / outer;
  const int64_t row = request.outputs[0].bytes() / outer;
  const int64_t before = request.op.attributes.integer("begin") * (bytes / part[axis]);
  return make_function_kernel([=](const KernelArguments& arguments) {
    parallel_for(outer, kCopyGrain / std::max<int64_t>(row, 1), [=](int64_t n) {
      std::byte* to = arguments.outputs[0] + n * row;
      std::memset(to, 0, static_cast<size_t>(before));
      std::memcpy(to + before, arguments.inputs[0] + n * bytes, static_cast<size_t>(bytes));
      std::memset(to + before + bytes, 0, static_cast<size_t>(row - before - bytes));
    });
  });
}

}  // namespace

std::vector<KernelFamily> kernels() {
  return {{"all_reduce", {{"copy", make_all_reduce}}},
          {"all_gather", {{"order", make_all_gather, true}}},
          {"reduce_scatter", {{"order", make_reduce_scatter}}},
          {"share_partial", {{"copy", make_share_partial, true}}},
          {"pad_slice", {{"copy", make_pad_slice}}}};
}

}  // namespace millrace::kernels::boxing
