// What a Python pickle describes, read without making any of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/sample.h"

namespace millrace::data {

// A value of a pickle, by its number; see Pickle.
using PickleId = uint32_t;
inline constexpr PickleId kNoPickleValue = UINT32_MAX;

// One value as plain data. A call that the pickle asks for is an `object` that remembers what would
// have been called; nothing is ever called.
struct PickleValue {
  enum class Kind : uint8_t {
    none,
    boolean,
    integer,
    large,  // an integer of more than 64 bits, little-endian in `text`
    real,
    text,
    bytes,
    sequence,    // a tuple, list or set: `items`
    dictionary,  // also collections.OrderedDict and defaultdict: keys and values by turns in
                 // `items`
    global,      // a name in a module: `module` and `text`
    object,      // what `callable` would have made of `arguments`; `items` were added to it
    persistent,  // something outside of the pickle, described by `arguments`
  };
  Kind kind = Kind::none;
  int64_t integer = 0;  // 0 or 1 for a boolean
  double real = 0;
  std::string_view text = {};    // points into the bytes that were read
  std::string_view module = {};  // likewise
  std::vector<PickleId> items = {};
  PickleId callable = kNoPickleValue;
  PickleId arguments = kNoPickleValue;
  PickleId state = kNoPickleValue;  // what its attributes were set to

  bool is_global(std::string_view of_module, std::string_view name) const {
    return kind == Kind::global && module == of_module && text == name;
  }
};

// The values of one pickle; containers refer to what they hold by number, so that values which are
// shared or contain themselves cost nothing. Plain data, but texts point into the bytes.
class Pickle {
 public:
  Pickle(std::vector<PickleValue> values, PickleId root, uint64_t size)
      : values_(std::move(values)), root_(root), size_(size) {}

  const PickleValue& operator[](PickleId id) const { return values_.at(id); }
  PickleId root() const { return root_; }
  size_t count() const { return values_.size(); }
  // Bytes from its beginning to its end.
  uint64_t size() const { return size_; }

  // Elements of a sequence; throws BadData if it is something else.
  const std::vector<PickleId>& elements(PickleId id) const;
  // The value of a text key, if `id` is a dictionary that has it.
  std::optional<PickleId> find(PickleId id, std::string_view key) const;

 private:
  std::vector<PickleValue> values_;
  PickleId root_;
  uint64_t size_;
};

// A pickle cannot be read; `offset` is the byte at fault.
class PickleFault : public BadData {
 public:
  PickleFault(uint64_t offset, const std::string& clause) : BadData(clause), offset_(offset) {}
  uint64_t offset() const { return offset_; }

 private:
  uint64_t offset_;
};

// Reads the pickle that the bytes begin with, of any protocol up to 5. Takes any bytes; throws
// PickleFault. Memory and time are bounded by the number of bytes.
Pickle read_pickle(std::span<const std::byte> bytes);

}  // namespace millrace::data
