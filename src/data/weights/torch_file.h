// Files that PyTorch's torch.save and torch.jit.save write.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/weights/weight_tensor.h"

namespace millrace::data {

// Whether the bytes begin as such a file does, a zip archive or PyTorch's older format.
bool is_torch_file(std::span<const std::byte> bytes);

// The tensors of its state dictionary under their dotted names, pointing into the bytes. The
// dictionary may be the whole file, lie in it as `state_dict`, `model` and the like, or be that of
// a module that was saved whole; a `module.` before every name is taken off. The centres that
// InsightFace's checkpoints have besides are `head.centres`. The pickle in it is
// read as data: nothing that it names is imported, made or called. With `checked`, which reads all
// of the file, members of a zip archive are held against their checksums. Takes any bytes; throws
// InputError naming `file`.
std::vector<WeightTensor> parse_torch_file(std::span<const std::byte> bytes, std::string_view file,
                                           bool checked);

}  // namespace millrace::data
