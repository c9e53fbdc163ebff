#include "compile/arithmetic.h"

#include <fmt/format.h>

#include "base/error.h"

namespace millrace {

PrecisionSettings::Arithmetic arithmetic_in_use(const PrecisionSettings& settings) {
  if (settings.arithmetic == PrecisionSettings::Arithmetic::native) {
    fail_input("--precision-arithmetic native is not available; use storage or auto.");
  }
  return PrecisionSettings::Arithmetic::storage;
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
