// Every implementation of every operator against its naive reference, for the shapes in shapes/:
// in all layouts it takes, in place where that is allowed, alone and in a team.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/parallel.h"
#include "case_file.h"
#include "graph/operator_definition.h"
#include "kernels/convolution_choices.h"
#include "kernels/processor.h"

namespace millrace::testing {
namespace {

using Key = std::vector<std::string>;

Key layouts_in(const kernels::KernelRequest& request) {
  Key key;
  for (const kernels::TensorSpec& tensor : request.inputs) key.push_back(tensor.layout.tag());
  for (const kernels::TensorSpec& tensor : request.outputs) key.push_back(tensor.layout.tag());
  return key;
}

std::string text_of(const Key& key) {
  std::string text;
  for (const std::string& tag : key) text += tag.empty() ? "plain " : tag + " ";
  return text;
}

// The requests to try: all plain, all images in one layout, and what the family wishes when
// images come so. Wished ones must be served.
struct Attempt {
  kernels::KernelRequest request;
  bool wished;
};

std::vector<Attempt> attempts_for(const SingleOperator& single,
                                  const kernels::KernelOptions& options) {
  std::vector<Attempt> attempts;
  std::set<Key> seen;
  const auto add = [&](kernels::KernelRequest request, bool is_wished) {
    if (seen.insert(layouts_in(request)).second) {
      attempts.push_back({std::move(request), is_wished});
    }
  };
  for (const char* tag : {"", "aBcd16b", "aBcd8b", "acdb"}) {
    add(wished(single, options, graph::Layout(tag)), true);
    add(single.request(options, graph::Layout(tag)), false);
  }
  return attempts;
}

class Implementations : public ::testing::TestWithParam<std::string> {
 protected:
  void TearDown() override { set_team_size(team_); }

  void compare(const OperatorCase& entry, const KernelRun& actual, const KernelRun& expected) {
    for (size_t i = 0; i < expected.outputs.size(); ++i) {
      EXPECT_EQ(difference(actual.outputs[i], expected.outputs[i], entry.tolerance), "")
          << "output " << i;
    }
    EXPECT_TRUE(actual.padding_is_zero);
  }

  void check(const OperatorCase& entry, const SingleOperator& single, kernels::Kernel& kernel,
             const kernels::KernelRequest& request, const KernelRun& expected) {
    const graph::OperatorDefinition& definition = graph::definition_of(entry.type);
    const KernelRun actual = run_kernel(kernel, request, entry.values());
    compare(entry, actual, expected);
    for (size_t i = 0; i < single.inputs.size(); ++i) {
      EXPECT_EQ(difference(actual.inputs[i], expected.inputs[i], entry.tolerance), "")
          << "input " << i << " afterwards";
    }
    for (const auto& pair : definition.in_place) {
      const auto input = static_cast<size_t>(pair.input);
      if (input >= request.inputs.size()) continue;
      const kernels::TensorSpec& from = request.inputs[input];
      const kernels::TensorSpec& to = request.outputs[static_cast<size_t>(pair.output)];
      if (!(from.type == to.type) || !(from.layout == to.layout)) continue;
      SCOPED_TRACE("in place of input " + std::to_string(pair.input));
      compare(entry, run_kernel(kernel, request, entry.values(), {pair.output, pair.input}),
              expected);
    }
  }

 private:
  int team_ = team_size();
};

// oneDNN's Winograd convolution exists for AVX-512 alone, and is what asking for Winograd gives
// there, else our own (which has a test of its own, tiled_convolution_test.cpp); the general direct
// one is only ever chosen by measuring and has a test of its own (convolution_choices_test.cpp),
// panels by measuring or costs (panel_convolution_test.cpp), and so has Winograd for bf16
// (halves_test.cpp), because the shapes here are float32.
bool exists_here(const std::string& name) {
  if (name.ends_with("/panels")) return false;
  if (name.ends_with("/direct_general") || name.ends_with("/winograd in f32")) return false;
  if (name.ends_with("/depthwise") || name.ends_with("/joined")) {
    return kernels::vector_instructions() != kernels::VectorInstructions::none;
  }
  if (name.ends_with("/winograd tiles")) {
    return kernels::vector_instructions() == kernels::VectorInstructions::avx2;
  }
  return !name.ends_with("/winograd") || __builtin_cpu_supports("avx512bw");
}

// Convolutions are also tried as the shipped costs choose.
std::vector<kernels::KernelOptions> options_for(const OperatorCase& entry,
                                                kernels::ConvolutionChoices& choices) {
  std::vector<kernels::KernelOptions> all(2);
  all[1].threads = 3;
  if (entry.type.find("convolution") != std::string::npos) {
    all.push_back(all[0]);
    all.back().convolution = kernels::ConvolutionAlgorithm::winograd;
    all.push_back(all[0]);
    all.back().choices = &choices;
  }
  return all;
}

TEST_P(Implementations, AgreeWithTheReference) {
  std::map<std::string, int> served;
  kernels::ConvolutionChoices choices("");
  for (const OperatorCase& entry : read_cases(GetParam())) {
    const SingleOperator single(entry.type, entry.attributes, entry.inputs);
    const KernelRun expected = run_reference(single, entry.values());
    const auto all_options = options_for(entry, choices);
    for (const kernels::KernelOptions& options : all_options) {
      set_team_size(options.threads);
      for (const Attempt& attempt : attempts_for(single, options)) {
        // One thread tries everything; the others what will be used.
        if (&options != &all_options.front() && !attempt.wished) continue;
        bool any = false;
        for (const kernels::KernelImplementation& way :
             kernels::kernels_of(entry.type).implementations) {
          const std::string name = entry.type + "/" + std::string(way.name);
          SCOPED_TRACE(entry.line + "\n  " + name + ", " + text_of(layouts_in(attempt.request)) +
                       std::to_string(options.threads) + " threads");
          served[name] += 0;
          std::string refusal;
          const auto kernel = way.create(attempt.request, &refusal);
          if (kernel == nullptr) {
            EXPECT_NE(refusal, "");
            continue;
          }
          any = true;
          ++served[name];
          check(entry, single, *kernel, attempt.request, expected);
        }
        EXPECT_TRUE(any || !attempt.wished)
            << entry.line << ": nobody serves " << text_of(layouts_in(attempt.request));
      }
    }
  }
  for (const auto& [name, count] : served) {
    EXPECT_TRUE(count > 0 || !exists_here(name)) << name << " served no case";
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Implementations,
                         ::testing::Values("accuracy", "activation", "add", "average_pool",
                                           "batch_norm", "batch_norm_synchronised", "boxing",
                                           "cast", "concat", "convolution", "dropout", "fill",
                                           "flatten", "l2_normalize", "linear", "max_pool",
                                           "normalised_convolution", "optimizer", "prelu",
                                           "scale_channels", "softmax_cross_entropy",
                                           "split_softmax"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace millrace::testing
