// The one rule by which things are divided over members.
#pragma once

#include <cstdint>

namespace millrace {

// Where member `part` of `parts` begins when `count` things are divided over them; parts differ by
// at most one, and part_begin(count, parts, parts) is count.
inline int64_t part_begin(int64_t count, int part, int parts) {
  return count / parts * part + count % parts * part / parts;
}

inline int64_t part_size(int64_t count, int part, int parts) {
  return part_begin(count, part + 1, parts) - part_begin(count, part, parts);
}

}  // namespace millrace
