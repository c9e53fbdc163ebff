// What an operator becomes on one of several devices.
#pragma once

#include "graph/operator_definition.h"

namespace millrace::parallel {

// The attributes of the member's own operator: shapes and numbers that tell of the part it has.
graph::Attributes local_attributes(const graph::Inference& whole,
                                   const graph::ShardingSignature& way, int member, int members);

// Whether several operators stand for this one on each device (see expansions.h).
bool is_expanded(const graph::Operator& op, const graph::ShardingSignature& way,
                 bool synchronise_batch_norm);

}  // namespace millrace::parallel
