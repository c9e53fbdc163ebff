#include "compile/arithmetic.h"

#include <fmt/format.h>

#include "base/error.h"
#include "kernels/processor.h"

namespace millrace {

PrecisionSettings::Arithmetic arithmetic_in_use(const PrecisionSettings& settings) {
  using Arithmetic = PrecisionSettings::Arithmetic;
  if (settings.arithmetic == Arithmetic::native && settings.type == DataType::f16) {
    fail_input(
        "--precision-arithmetic native is not available for fp16; use --precision bf16, or storage "
        "or auto.");
  }
  if (settings.arithmetic == Arithmetic::native && settings.is_half() && !can_compute_bf16()) {
    fail_input(
        "--precision-arithmetic native needs a processor with AVX-512, which this is not (or "
        "ONEDNN_MAX_CPU_ISA hides it); use storage or auto.");
  }
  if (settings.arithmetic != Arithmetic::automatic) return settings.arithmetic;
  const bool native = settings.type == DataType::bf16 && has_native_bf16();
  return native ? Arithmetic::native : Arithmetic::storage;
}

bool stores_in_16_bits(const PrecisionSettings& settings) {
  return settings.is_half() &&
         arithmetic_in_use(settings) == PrecisionSettings::Arithmetic::storage;
}

std::string describe(const PrecisionSettings& settings) {
  if (!settings.is_half()) return "float32 arithmetic";
  const std::string_view name = precision_name(settings.type);
  if (arithmetic_in_use(settings) == PrecisionSettings::Arithmetic::native) {
    return fmt::format("{} arithmetic, weights and sums in float32", name);
  }
  return fmt::format("float32 arithmetic, activations stored in {}", name);
}

}  // namespace millrace
