// Changes files of protobuf's wire format: fields are dropped, repeated, exchanged and put in each
// other's place, numbers become others, and all lengths around them stay right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace millrace {

// `words` are texts that mean something to the reader; one of them is changed to another now and
// then. Every fourth time the file as a whole is changed instead.
size_t mutate_protobuf(std::span<const std::string_view> words, uint8_t* data, size_t size,
                       size_t most, unsigned seed);

}  // namespace millrace
