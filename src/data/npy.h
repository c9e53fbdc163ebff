// NumPy's files of arrays, as numpy.load reads them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

namespace millrace::data {

// Writes float32 rows of `columns` numbers each; `path` appears whole or not at all.
void write_npy(const std::filesystem::path& path, std::span<const float> values, int64_t columns);

}  // namespace millrace::data
