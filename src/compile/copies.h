// The instructions of a program that move tensors to and from other stages, and from one version of
// the weights to the next.
#pragma once

#include "compile/program.h"

namespace millrace::compile {

// Adds them to a program that has its places. A task begins with what it receives, each message
// behind which its rows are copied into the micro-batch's slot, and ends with what it sends, each
// behind its copy; a program without a backward pass moves no gradients. Where there are several
// versions, a parameter is copied before the first update that reads it, when nothing reads its old
// value any more. Throws std::logic_error where a tensor does not hold the rows of its channel.
void add_copies(Program& program, const std::vector<parallel::RouteEnd>& channels);

}  // namespace millrace::compile
