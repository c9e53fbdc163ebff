// What a precision means on this processor.
#pragma once

#include <string>

#include "passes/settings.h"

namespace millrace {

// Native or storage; of no meaning for f32. Throws InputError naming --precision-arithmetic if what
// is asked for cannot be had.
PrecisionSettings::Arithmetic arithmetic_in_use(const PrecisionSettings& settings);

// Whether tensors are only kept in 16 bits.
bool stores_in_16_bits(const PrecisionSettings& settings);

// For people: "float32 arithmetic, activations stored in fp16".
std::string describe(const PrecisionSettings& settings);

}  // namespace millrace
