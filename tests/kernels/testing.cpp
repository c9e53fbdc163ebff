#include "testing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "base/random.h"
#include "graph/operator_definition.h"

namespace millrace::testing {
namespace {

// Calls body(logical position, physical position).
template <typename Body>
void each_element(const kernels::TensorSpec& spec, Body&& body) {
  const graph::Shape& shape = spec.type.shape;
  std::vector<int64_t> index(shape.size());
  for (int64_t i = 0; i < spec.elements(); ++i) {
    body(static_cast<size_t>(i), spec.layout.offset(shape, index));
    for (size_t axis = shape.size(); axis-- > 0;) {
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
  }
}

void put(std::byte* data, graph::DataType type, int64_t position, double value) {
  switch (type) {
    case graph::DataType::s32:
      reinterpret_cast<int32_t*>(data)[position] = static_cast<int32_t>(value);
      break;
    case graph::DataType::u8:
      reinterpret_cast<uint8_t*>(data)[position] = static_cast<uint8_t>(value);
      break;
    case graph::DataType::f16:
      reinterpret_cast<uint16_t*>(data)[position] = to_f16(static_cast<float>(value));
      break;
    case graph::DataType::bf16:
      reinterpret_cast<uint16_t*>(data)[position] = to_bf16(static_cast<float>(value));
      break;
    default:
      reinterpret_cast<float*>(data)[position] = static_cast<float>(value);
  }
}

double get(const std::byte* data, graph::DataType type, int64_t position) {
  switch (type) {
    case graph::DataType::s32:
      return reinterpret_cast<const int32_t*>(data)[position];
    case graph::DataType::u8:
      return reinterpret_cast<const uint8_t*>(data)[position];
    case graph::DataType::f16:
      return static_cast<double>(from_f16(reinterpret_cast<const uint16_t*>(data)[position]));
    case graph::DataType::bf16:
      return static_cast<double>(from_bf16(reinterpret_cast<const uint16_t*>(data)[position]));
    default:
      return static_cast<double>(reinterpret_cast<const float*>(data)[position]);
  }
}

bool has_zero_padding(const Storage& storage, const kernels::TensorSpec& spec) {
  std::vector<bool> used(static_cast<size_t>(spec.physical_elements()));
  each_element(spec, [&](size_t, int64_t at) { used[static_cast<size_t>(at)] = true; });
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i] && get(storage.data(), spec.type.dtype, static_cast<int64_t>(i)) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

Values random_values(const graph::TensorType& type, uint64_t seed, bool positive) {
  Values values(static_cast<size_t>(type.elements()));
  const Random random(seed, 1);
  for (size_t i = 0; i < values.size(); ++i) {
    const float uniform = random.uniform(i);
    values[i] = static_cast<double>(positive ? uniform + 0.5f : 2 * uniform - 1);
  }
  return values;
}

Values spaced_values(const graph::TensorType& type, uint64_t seed) {
  const auto count = static_cast<size_t>(type.elements());
  Values values(count);
  // An even number of steps keeps 0 in the middle between two of them.
  const auto steps = static_cast<double>(count + count % 2);
  for (size_t i = 0; i < count; ++i) {
    values[i] =
        static_cast<double>(static_cast<float>((static_cast<double>(i) + 0.5) * 2 / steps - 1));
  }
  const Random random(seed, 2);
  for (size_t i = count; i > 1; --i) std::swap(values[i - 1], values[random.below(i, i)]);
  return values;
}

Values random_labels(const graph::TensorType& type, int64_t classes, uint64_t seed) {
  Values values(static_cast<size_t>(type.elements()));
  const Random random(seed, 3);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(random.below(i, static_cast<uint64_t>(classes)));
  }
  return values;
}

Storage pack(const Values& values, const kernels::TensorSpec& spec) {
  Storage storage(static_cast<uint64_t>(spec.bytes()));
  each_element(spec, [&](size_t logical, int64_t physical) {
    put(storage.data(), spec.type.dtype, physical, values.at(logical));
  });
  return storage;
}

Values unpack(const Storage& storage, const kernels::TensorSpec& spec) {
  Values values(static_cast<size_t>(spec.elements()));
  each_element(spec, [&](size_t logical, int64_t physical) {
    values[logical] = get(storage.data(), spec.type.dtype, physical);
  });
  return values;
}

Storage unwritten(const kernels::TensorSpec& spec) {
  Storage storage(static_cast<uint64_t>(spec.bytes()));
  const bool is_float =
      spec.type.dtype != graph::DataType::s32 && spec.type.dtype != graph::DataType::u8;
  for (int64_t i = 0; i < spec.physical_elements(); ++i) {
    put(storage.data(), spec.type.dtype, i,
        is_float ? std::numeric_limits<double>::quiet_NaN() : 255);
  }
  return storage;
}

KernelRun run_kernel(kernels::Kernel& kernel, const kernels::KernelRequest& request,
                     const std::vector<Values>& inputs, std::pair<int, int> in_place,
                     const kernels::StepState& step) {
  std::vector<Storage> input_storage;
  std::vector<Storage> output_storage;
  std::vector<std::byte*> input_pointers;
  std::vector<std::byte*> output_pointers;
  for (size_t i = 0; i < inputs.size(); ++i) {
    input_storage.push_back(pack(inputs[i], request.inputs[i]));
    input_pointers.push_back(input_storage.back().data());
  }
  for (const kernels::TensorSpec& output : request.outputs) {
    output_storage.push_back(unwritten(output));
    output_pointers.push_back(output_storage.back().data());
  }
  if (in_place.first >= 0) {
    output_pointers.at(static_cast<size_t>(in_place.first)) =
        input_pointers.at(static_cast<size_t>(in_place.second));
  }
  Storage workspace(kernel.workspace_bytes());
  std::memset(workspace.data(), 0xFF, kernel.workspace_bytes());
  kernel.run({input_pointers, output_pointers, workspace.data(), &step});

  KernelRun run;
  for (size_t i = 0; i < inputs.size(); ++i) {
    run.inputs.push_back(unpack(input_storage[i], request.inputs[i]));
  }
  for (size_t i = 0; i < request.outputs.size(); ++i) {
    const bool inside = static_cast<int>(i) == in_place.first;
    const Storage& storage =
        inside ? input_storage[static_cast<size_t>(in_place.second)] : output_storage[i];
    run.outputs.push_back(unpack(storage, request.outputs[i]));
    if (request.outputs[i].type.dtype == graph::DataType::f32) {
      run.padding_is_zero &= has_zero_padding(storage, request.outputs[i]);
    }
  }
  return run;
}

SingleOperator::SingleOperator(std::string type, graph::Attributes attributes,
                               std::vector<graph::TensorType> input_types)
    : inputs(std::move(input_types)) {
  op.type = std::move(type);
  op.name = "tested";
  op.attributes = std::move(attributes);
  for (size_t i = 0; i < inputs.size(); ++i) op.inputs.push_back(static_cast<graph::TensorId>(i));
  outputs = graph::definition_of(op.type).infer({op, inputs});
}

kernels::KernelRequest SingleOperator::request(const kernels::KernelOptions& options,
                                               const graph::Layout& layout) const {
  kernels::KernelRequest request{op, {}, {}, options};
  const auto spec = [&](const graph::TensorType& type) {
    return kernels::TensorSpec{type, type.shape.size() == 4 ? layout : graph::Layout()};
  };
  for (const graph::TensorType& type : inputs) request.inputs.push_back(spec(type));
  for (const graph::TensorType& type : outputs) request.outputs.push_back(spec(type));
  return request;
}

kernels::KernelRequest wished(const SingleOperator& single, const kernels::KernelOptions& options,
                              const graph::Layout& layout) {
  kernels::KernelRequest request = single.request(options, layout);
  for (kernels::TensorSpec& output : request.outputs) output.layout = graph::Layout();
  const kernels::LayoutWish wish = kernels::layouts_of(request);
  for (size_t i = 0; i < request.inputs.size(); ++i) request.inputs[i].layout = wish.inputs.at(i);
  for (size_t i = 0; i < request.outputs.size(); ++i) {
    request.outputs[i].layout = wish.outputs.at(i);
  }
  return request;
}

KernelRun run_reference(const SingleOperator& single, const std::vector<Values>& inputs,
                        const kernels::StepState& step) {
  const kernels::KernelOptions options = {.reference_only = true};
  const kernels::KernelRequest request = single.request(options);
  return run_kernel(*kernels::make_kernel(request), request, inputs, {-1, -1}, step);
}

std::map<graph::TensorId, Values> interpret(const graph::Graph& graph,
                                            std::map<graph::TensorId, Values> values,
                                            const kernels::KernelOptions& options,
                                            const graph::Layout& layout,
                                            const ExchangeFunction& exchange) {
  for (graph::OperatorId id : graph.order()) {
    const graph::Operator& op = graph.op(id);
    std::vector<graph::TensorType> types;
    std::vector<Values> inputs;
    for (graph::TensorId input : op.inputs) {
      types.push_back(graph.tensor(input).type);
      inputs.push_back(values.at(input));
    }
    const graph::OperatorDefinition& definition = graph::definition_of(op.type);
    if (exchange && definition.exchange != graph::OperatorDefinition::Exchange::none) {
      values[op.outputs.at(0)] = exchange(op, types[0].shape, inputs[0]);
      continue;
    }
    const SingleOperator single(op.type, op.attributes, types);
    const kernels::KernelRequest request = wished(single, options, layout);
    const KernelRun run =
        run_kernel(*kernels::make_kernel(request), request, inputs, {-1, -1}, kStep);
    for (size_t i = 0; i < op.outputs.size(); ++i) values[op.outputs[i]] = run.outputs[i];
    for (int i : definition.mutated_inputs) {
      values[op.inputs.at(static_cast<size_t>(i))] = run.inputs.at(static_cast<size_t>(i));
    }
  }
  return values;
}

std::string difference(const Values& actual, const Values& expected, double tolerance) {
  if (actual.size() != expected.size()) {
    return fmt::format("{} elements instead of {}", actual.size(), expected.size());
  }
  for (size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i]))) continue;
    if (std::abs(actual[i] - expected[i]) <= tolerance * (1 + std::abs(expected[i]))) continue;
    return fmt::format("element {} is {} instead of {}", i, actual[i], expected[i]);
  }
  return {};
}

}  // namespace millrace::testing
