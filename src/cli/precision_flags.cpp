#include "cli/precision_flags.h"

#include "base/error.h"
#include "cli/job_flags.h"

namespace millrace::cli {

void add_precision_flags(CLI::App& command, PrecisionFlags& flags) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->group("Precision");
  };
  add("--precision", flags.precision,
      "fp32, or fp16 or bf16: activations take half the memory; weights stay float32")
      ->capture_default_str();
  add("--precision-arithmetic", flags.arithmetic,
      "native (multiply numbers of 16 bits; bf16 only), storage (compute in float32, keep "
      "activations in 16 bits) or auto: native where the processor has it")
      ->capture_default_str();
  add("--precision-keep", flags.keep,
      "Layers that stay float32, such as conv1,layer4.2 (which takes in layer4.2.conv1 ...)")
      ->delimiter(',')
      ->allow_extra_args(false);
  add("--comm-dtype", flags.communication,
      "What gradients and the activations between stages travel as: fp32, fp16 or bf16; sums are "
      "made in float32 [as --precision]");
}

graph::DataType precision_type(const std::string& text, std::string_view flag) {
  constexpr graph::DataType kTypes[] = {graph::DataType::f32, graph::DataType::f16,
                                        graph::DataType::bf16};
  return kTypes[choose(flag, text, {"fp32", "fp16", "bf16"})];
}

passes::PrecisionSettings to_precision(const PrecisionFlags& flags) {
  using Arithmetic = passes::PrecisionSettings::Arithmetic;
  constexpr Arithmetic kArithmetics[] = {Arithmetic::automatic, Arithmetic::native,
                                         Arithmetic::storage};
  passes::PrecisionSettings settings;
  settings.type = precision_type(flags.precision);
  settings.arithmetic = kArithmetics[choose("--precision-arithmetic", flags.arithmetic,
                                            {"auto", "native", "storage"})];
  settings.keep = flags.keep;
  if (!flags.communication.empty()) {
    settings.communication = precision_type(flags.communication, "--comm-dtype");
  }
  if (settings.arithmetic == Arithmetic::native && settings.type != graph::DataType::bf16) {
    fail_input("--precision-arithmetic native needs --precision bf16, not {}.", flags.precision);
  }
  return settings;
}

}  // namespace millrace::cli
