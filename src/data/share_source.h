// A part of a data set that is held back, and the rest.
#pragma once

#include <memory>

#include "data/record_source.h"

namespace millrace::data {

// Divides the records by the seed alone: `share` of them, and of each class where the format tells
// classes without reading, are Split::test, the others Split::train, each in the order of the
// whole. Every class that has two records keeps one for training. Throws InputError if a part
// would be empty.
std::unique_ptr<RecordSource> take_share(std::unique_ptr<RecordSource> whole, double share,
                                         uint64_t seed, Split part);

}  // namespace millrace::data
