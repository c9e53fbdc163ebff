// Operators that ask something of other devices, as instructions.
#pragma once

#include <vector>

#include "compile/instruction.h"
#include "graph/operator_definition.h"

namespace millrace::compile {

// What an operator becomes: usually one instruction. `compute` is ready but for its kernel, which
// is made for `request` where it is needed. Those of an operator that exchanges are a collective
// and what is left to do on the device before or behind it.
std::vector<Instruction> instructions_of(const graph::Operator& op,
                                         const graph::OperatorDefinition& definition,
                                         const kernels::KernelRequest& request,
                                         Instruction compute);

}  // namespace millrace::compile
