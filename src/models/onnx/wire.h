// Protobuf's wire format: fields with a number, each a number or a piece of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/output_file.h"

namespace millrace::models::onnx {

enum class WireType : uint8_t { varint = 0, fixed64 = 1, delimited = 2, fixed32 = 5 };

// One field of a message. `value` has the bits of a number, whatever its length.
struct WireField {
  uint64_t number = 0;
  WireType type = WireType::varint;
  uint64_t value = 0;
  std::span<const std::byte> bytes = {};

  int64_t integer() const { return static_cast<int64_t>(value); }
  float single() const;
  std::string text() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
};

// Walks over the fields of a message that it does not own. Takes any bytes; throws InputError
// with a clause where they are no message.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool next(WireField& field);

  // For packed lists of numbers.
  bool empty() const { return bytes_.empty(); }
  uint64_t varint();
  uint64_t fixed(size_t size);

 private:
  std::span<const std::byte> take(uint64_t size);

  std::span<const std::byte> bytes_;
};

// A message that is being put together. Large pieces are borrowed until it is written.
class WireWriter {
 public:
  void integer(uint64_t field, int64_t value);
  void single(uint64_t field, float value);
  void text(uint64_t field, std::string_view text);
  void borrowed(uint64_t field, std::span<const std::byte> bytes);
  void message(uint64_t field, WireWriter&& inner);

  uint64_t size() const { return size_; }
  void write(OutputFile& file) const;

 private:
  void varint(uint64_t value);
  void tag(uint64_t field, WireType type);
  void put(std::string_view text);

  // Either text of its own or a borrowed piece.
  struct Piece {
    std::string own = {};
    std::span<const std::byte> borrowed = {};
  };
  std::list<Piece> pieces_;
  uint64_t size_ = 0;
};

}  // namespace millrace::models::onnx
