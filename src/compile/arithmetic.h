// What a precision means on this processor.
#pragma once

#include <string>

#include "passes/settings.h"

namespace millrace::compile {

// Native or storage; of no meaning for f32. Throws InputError naming --precision-arithmetic if what
// is asked for cannot be had.
passes::PrecisionSettings::Arithmetic arithmetic_in_use(const passes::PrecisionSettings& settings);

// Whether tensors are only kept in 16 bits.
bool stores_in_16_bits(const passes::PrecisionSettings& settings);

// For people: "float32 arithmetic, activations stored in fp16".
std::string describe(const passes::PrecisionSettings& settings);

}  // namespace millrace::compile
