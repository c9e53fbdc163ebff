// Tests of native bf16 on processors that have none.
#pragma once

#include <gtest/gtest.h>

#include "base/error.h"
#include "compile/arithmetic.h"
#include "kernels/processor.h"

namespace millrace::runtime {

// Without AVX-512 native bf16 is refused, and that is what such a test then looks at.
inline bool refuses_native_bf16() {
  if (kernels::can_compute_bf16()) return false;
  passes::PrecisionSettings settings;
  settings.type = graph::DataType::bf16;
  settings.arithmetic = passes::PrecisionSettings::Arithmetic::native;
  EXPECT_THROW(compile::arithmetic_in_use(settings), InputError);
  return true;
}

}  // namespace millrace::runtime
