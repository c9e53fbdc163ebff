#include "compile/arithmetic.h"

#include <fmt/format.h>

#include "base/error.h"
#include "kernels/processor.h"

namespace millrace::compile {

passes::PrecisionSettings::Arithmetic arithmetic_in_use(const passes::PrecisionSettings& settings) {
  using Arithmetic = passes::PrecisionSettings::Arithmetic;
  if (settings.arithmetic == Arithmetic::native && settings.type == graph::DataType::f16) {
    fail_input(
        "‹precision_arithmetic› native is not available for fp16; use ‹precision› bf16, or storage "
        "or auto.");
  }
  if (settings.arithmetic == Arithmetic::native && settings.is_half() &&
      !kernels::can_compute_bf16()) {
    fail_input(
        "‹precision_arithmetic› native needs a processor with AVX-512, which this is not (or "
        "ONEDNN_MAX_CPU_ISA hides it); use storage or auto.");
  }
  if (settings.arithmetic != Arithmetic::automatic) return settings.arithmetic;
  const bool native = settings.type == graph::DataType::bf16 && kernels::has_native_bf16();
  return native ? Arithmetic::native : Arithmetic::storage;
}

bool stores_in_16_bits(const passes::PrecisionSettings& settings) {
  return settings.is_half() &&
         arithmetic_in_use(settings) == passes::PrecisionSettings::Arithmetic::storage;
}

std::string describe(const passes::PrecisionSettings& settings) {
  if (!settings.is_half()) return "float32 arithmetic";
  const std::string_view name = passes::precision_name(settings.type);
  if (arithmetic_in_use(settings) == passes::PrecisionSettings::Arithmetic::native) {
    return fmt::format("{} arithmetic, weights and sums in float32", name);
  }
  return fmt::format("float32 arithmetic, activations stored in {}", name);
}

}  // namespace millrace::compile
