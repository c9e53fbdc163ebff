// Operators that become several on each device, with a collective in the middle:
// - softmax_cross_entropy and top_k over split classes exchange three numbers per sample;
// - a margin head over split classes exchanges three numbers per sample; where every device has
//   all classes, each does the same work and gives a share of the embeddings' gradient;
// - batch_norm over split samples exchanges mean and variance per channel, if asked to.
#pragma once

#include "parallel/localizer.h"

namespace millrace::parallel {

void expand(Localizer& localizer, const graph::Operator& op, const graph::ShardingSignature& way);

}  // namespace millrace::parallel
