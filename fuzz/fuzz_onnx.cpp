#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "fuzz_target.h"
#include "models/onnx/importer.h"
#include "mutator.h"
#include "protobuf_mutator.h"

namespace millrace {
namespace {

// Texts that decide how a node is read.
constexpr std::string_view kWords[] = {"Add",
                                       "AveragePool",
                                       "BatchNormalization",
                                       "Cast",
                                       "Clip",
                                       "Concat",
                                       "Constant",
                                       "Conv",
                                       "ConstantOfShape",
                                       "Div",
                                       "Dropout",
                                       "Expand",
                                       "Flatten",
                                       "Gather",
                                       "Gemm",
                                       "GlobalAveragePool",
                                       "HardSigmoid",
                                       "HardSwish",
                                       "Identity",
                                       "LeakyRelu",
                                       "LogSoftmax",
                                       "LpNormalization",
                                       "MatMul",
                                       "Max",
                                       "MaxPool",
                                       "Min",
                                       "Mul",
                                       "Pad",
                                       "PRelu",
                                       "ReduceL2",
                                       "ReduceMax",
                                       "ReduceMean",
                                       "ReduceProd",
                                       "Relu",
                                       "Reshape",
                                       "Resize",
                                       "Shape",
                                       "Sigmoid",
                                       "Slice",
                                       "Softmax",
                                       "Split",
                                       "Sqrt",
                                       "Squeeze",
                                       "Sub",
                                       "Sum",
                                       "Tanh",
                                       "Transpose",
                                       "Unsqueeze",
                                       "Upsample",
                                       "GatherND",
                                       "Where",
                                       "GlobalMaxPool",
                                       "alpha",
                                       "auto_pad",
                                       "axes",
                                       "axis",
                                       "beta",
                                       "ceil_mode",
                                       "coordinate_transformation_mode",
                                       "nearest_mode",
                                       "asymmetric",
                                       "floor",
                                       "nearest",
                                       "count_include_pad",
                                       "dilations",
                                       "epsilon",
                                       "group",
                                       "keepdims",
                                       "kernel_shape",
                                       "max",
                                       "min",
                                       "mode",
                                       "num_outputs",
                                       "p",
                                       "pads",
                                       "perm",
                                       "ratio",
                                       "split",
                                       "strides",
                                       "to",
                                       "transA",
                                       "transB",
                                       "value",
                                       "SAME_UPPER",
                                       "SAME_LOWER",
                                       "VALID"};

// What a user is told is one line that can be printed.
void expect_one_line(std::string_view sentence) {
  const auto is_control = [](char letter) { return static_cast<unsigned char>(letter) < ' '; };
  if (sentence.empty() || std::any_of(sentence.begin(), sentence.end(), is_control)) std::abort();
}

}  // namespace
}  // namespace millrace

// As a file, and as the network in it; data beside the file is a small one.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::vector<std::byte> beside(4096);
  try {
    const models::onnx::Model model =
        models::onnx::parse_model(std::as_bytes(std::span(data, size)), "fuzz",
                                  [&](const std::string&) { return std::span(beside); });
    for (const int64_t classes : {0, 7}) {
      try {
        graph::Builder net;
        const models::onnx::ImportedNetwork network =
            models::onnx::import_model(model, {.batch = 2, .classes = classes, .image = 0}, net);
        for (const models::onnx::ImportedWeight& weight : network.weights)
          sink = touch(weight.data.bytes);
      } catch (const InputError& error) {
        expect_one_line(error.marked());
      }
    }
  } catch (const InputError& error) {
    expect_one_line(error.marked());
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return millrace::mutate_protobuf(millrace::kWords, data, size, most, seed);
}
