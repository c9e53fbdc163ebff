// Mutators that know what their format is made of, so that changes reach beyond the first check.
//
// A format says how a file is taken apart and put together again; one part is then changed as any
// bytes are, or parts are repeated, dropped and exchanged, while lengths and checksums stay right.
// Every fourth time the file as a whole is changed instead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

using Parts = std::vector<std::string>;

struct PartsFormat {
  std::function<Parts(std::string_view)> split;  // takes any bytes
  std::function<std::string(const Parts&)> join;
};

// What LLVMFuzzerCustomMutator returns.
size_t mutate_parts(const PartsFormat& format, uint8_t* data, size_t size, size_t most,
                    unsigned seed);

// Changes a value of a JSON text, or of one of its lines: another kind, an extreme number, a field
// dropped, repeated or renamed. Text that is no JSON is changed as any bytes are.
size_t mutate_json(uint8_t* data, size_t size, size_t most, unsigned seed);

// Records that each begin with their length, in so many bytes, the lowest first.
PartsFormat length_prefixed(size_t length_bytes);

// Lines, as of YAML and of lists.
PartsFormat lines_of_text();

}  // namespace millrace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed);
