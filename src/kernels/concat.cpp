#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/parallel.h"
#include "kernels/support/elements.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/layout_rules.h"
#include "kernels/support/request_checks.h"

namespace millrace::kernels::concat {
namespace {

constexpr int64_t kCopyGrain = 1 << 17;

// A tensor seen as `outer` runs of `length` elements that a cut along the axis keeps whole.
struct Runs {
  int64_t outer = 1;
  int64_t length = 1;
};

Runs runs_of(const graph::Shape& shape, int64_t axis) {
  Runs runs;
  for (size_t i = 0; i < shape.size(); ++i) {
    (static_cast<int64_t>(i) < axis ? runs.outer : runs.length) *= shape[i];
  }
  return runs;
}

// Whether positions along the axis `cuts` may be boundaries: in a layout with blocked channels
// only a cut between samples or between whole blocks leaves contiguous runs.
bool can_cut(const graph::Layout& layout, int64_t axis, const std::vector<int64_t>& channels) {
  const int64_t block = layout.channel_block();
  if (block == 1) return true;
  if (block == 0 || axis > 1) return false;
  return std::all_of(channels.begin(), channels.end(),
                     [block](int64_t count) { return count % block == 0; });
}

std::vector<int64_t> cuts_of(const KernelRequest& request) {
  std::vector<int64_t> cuts;
  for (const TensorSpec& tensor : request.inputs) cuts.push_back(tensor.type.shape.at(1));
  for (const TensorSpec& tensor : request.outputs) cuts.push_back(tensor.type.shape.at(1));
  if (request.op.type == "slice" && request.op.attributes.integer("axis") == 1) {
    cuts.push_back(request.op.attributes.integer("begin"));
  }
  return cuts;
}

bool is_cuttable(const KernelRequest& request, std::string* refusal) {
  if (!is_uniform(request, refusal) || !has_one_type(request, 0, refusal)) return false;
  const graph::Layout& layout = request.inputs[0].layout;
  if (layout.is_plain()) return true;
  if (can_cut(layout, request.op.attributes.integer("axis"), cuts_of(request))) return true;
  *refusal = fmt::format("the cuts do not fit layout '{}'", layout.tag());
  return false;
}

LayoutWish follow_cuttable(const KernelRequest& request) {
  const graph::Layout& layout = request.inputs[0].layout;
  if (layout.is_plain() ||
      can_cut(layout, request.op.attributes.integer("axis"), cuts_of(request))) {
    return follow_input(request, 0);
  }
  return {std::vector<graph::Layout>(request.inputs.size()), std::vector<graph::Layout>(1)};
}

std::unique_ptr<Kernel> make_concat(const KernelRequest& request, std::string* refusal) {
  if (!is_cuttable(request, refusal)) return nullptr;
  const int64_t axis = request.op.attributes.integer("axis");
  const int64_t size = graph::size_of(request.inputs[0].type.dtype);
  struct Part {
    int64_t begin;
    int64_t bytes;
  };
  std::vector<Part> parts;
  int64_t row = 0;
  for (const TensorSpec& input : request.inputs) {
    parts.push_back({row, runs_of(input.type.shape, axis).length * size});
    row += parts.back().bytes;
  }
  const int64_t outer = runs_of(request.outputs[0].type.shape, axis).outer;
  return make_function_kernel([parts, row, outer](const KernelArguments& arguments) {
    const auto count = static_cast<int64_t>(parts.size());
    const int64_t grain = kCopyGrain * count / std::max<int64_t>(row, 1);
    parallel_for(outer * count, grain, [&](int64_t task) {
      const auto part = static_cast<size_t>(task % count);
      const int64_t n = task / count;
      std::memcpy(arguments.outputs[0] + n * row + parts[part].begin,
                  arguments.inputs[part] + n * parts[part].bytes,
                  static_cast<size_t>(parts[part].bytes));
    });
  });
}

std::unique_ptr<Kernel> make_slice(const KernelRequest& request, std::string* refusal) {
  if (!is_cuttable(request, refusal)) return nullptr;
  const graph::Attributes& attributes = request.op.attributes;
  const int64_t axis = attributes.integer("axis");
  const int64_t size = graph::size_of(request.inputs[0].type.dtype);
  const graph::Shape& shape = request.inputs[0].type.shape;
  const Runs runs = runs_of(shape, axis);
  const int64_t row = runs.length * size;
  const int64_t unit = row / shape.at(static_cast<size_t>(axis));
  const int64_t begin = attributes.integer("begin") * unit;
  const int64_t bytes = attributes.integer("end") * unit - begin;
  return make_function_kernel([=](const KernelArguments& arguments) {
    parallel_for(runs.outer, kCopyGrain / std::max<int64_t>(bytes, 1), [&](int64_t n) {
      std::memcpy(arguments.outputs[0] + n * bytes, arguments.inputs[0] + n * row + begin,
                  static_cast<size_t>(bytes));
    });
  });
}

// Copies the overlap of `from` and `to` element by element, where index `i` along the axis of
// `from` is index i + shift of `to`.
void copy_shifted(const std::byte* from, const graph::Shape& from_shape, std::byte* to,
                  const graph::Shape& to_shape, size_t axis, int64_t shift, int64_t size) {
  std::vector<int64_t> index(from_shape.size());
  const graph::Layout plain;
  for (int64_t i = 0; i < graph::elements_of(from_shape); ++i) {
    int64_t rest = i;
    for (size_t a = from_shape.size(); a-- > 0; rest /= from_shape[a]) {
      index[a] = rest % from_shape[a];
    }
    index[axis] += shift;
    if (index[axis] < 0 || index[axis] >= to_shape[axis]) continue;
    std::copy_n(from + i * size, size, to + plain.offset(to_shape, index) * size);
  }
}

std::unique_ptr<Kernel> reference_concat(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const auto axis = static_cast<size_t>(request.op.attributes.integer("axis"));
  const int64_t size = graph::size_of(request.inputs[0].type.dtype);
  return make_function_kernel([inputs = request.inputs, output = request.outputs[0], axis,
                               size](const KernelArguments& arguments) {
    int64_t shift = 0;
    for (size_t part = 0; part < inputs.size(); ++part) {
      copy_shifted(arguments.inputs[part], inputs[part].type.shape, arguments.outputs[0],
                   output.type.shape, axis, shift, size);
      shift += inputs[part].type.shape[axis];
    }
  });
}

std::unique_ptr<Kernel> reference_slice(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const auto axis = static_cast<size_t>(request.op.attributes.integer("axis"));
  const int64_t begin = request.op.attributes.integer("begin");
  const int64_t size = graph::size_of(request.inputs[0].type.dtype);
  return make_function_kernel([input = request.inputs[0].type.shape,
                               output = request.outputs[0].type.shape, axis, begin,
                               size](const KernelArguments& arguments) {
    copy_shifted(arguments.inputs[0], input, arguments.outputs[0], output, axis, -begin, size);
  });
}

}  // namespace

std::vector<KernelFamily> kernels() {
  return {
      {"concat", {{"copy", make_concat, true}, {"reference", reference_concat}}, follow_cuttable},
      {"slice", {{"copy", make_slice, true}, {"reference", reference_slice}}, follow_cuttable},
  };
}

}  // namespace millrace::kernels::concat
