#include "models/onnx/wire.h"

#include <cstring>

#include "base/error.h"

namespace millrace::models::onnx {

float WireField::single() const {
  const auto bits = static_cast<uint32_t>(value);
  float made = 0;
  std::memcpy(&made, &bits, sizeof(made));
  return made;
}

std::span<const std::byte> WireReader::take(uint64_t size) {
  if (size > bytes_.size()) {
    fail_input("a field has {} bytes where {} are left", size, bytes_.size());
  }
  const auto taken = bytes_.first(size);
  bytes_ = bytes_.subspan(size);
  return taken;
}

uint64_t WireReader::varint() {
  uint64_t number = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<uint64_t>(take(1)[0]);
    number |= (byte & 0x7F) << shift;
    if (byte < 0x80) return number;
  }
  fail_input("a number is longer than 10 bytes");
}

uint64_t WireReader::fixed(size_t size) {
  uint64_t number = 0;
  std::memcpy(&number, take(size).data(), size);
  return number;
}

bool WireReader::next(WireField& field) {
  if (bytes_.empty()) return false;
  const uint64_t tag = varint();
  field = {};
  field.number = tag >> 3;
  field.type = static_cast<WireType>(tag & 7);
  switch (field.type) {
    case WireType::varint:
      field.value = varint();
      break;
    case WireType::fixed64:
      field.value = fixed(8);
      break;
    case WireType::delimited:
      field.bytes = take(varint());
      break;
    case WireType::fixed32:
      field.value = fixed(4);
      break;
    default:
      fail_input("a field has the unknown wire type {}", tag & 7);
  }
  return true;
}

void WireWriter::put(std::string_view text) {
  if (pieces_.empty() || !pieces_.back().borrowed.empty()) pieces_.emplace_back();
  pieces_.back().own += text;
  size_ += text.size();
}

void WireWriter::varint(uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text += static_cast<char>(value | 0x80);
  text += static_cast<char>(value);
  put(text);
}

void WireWriter::tag(uint64_t field, WireType type) {
  varint(field << 3 | static_cast<uint64_t>(type));
}

void WireWriter::integer(uint64_t field, int64_t value) {
  tag(field, WireType::varint);
  varint(static_cast<uint64_t>(value));
}

void WireWriter::single(uint64_t field, float value) {
  char bytes[sizeof(value)];
  std::memcpy(bytes, &value, sizeof(value));
  tag(field, WireType::fixed32);
  put({bytes, sizeof(value)});
}

void WireWriter::text(uint64_t field, std::string_view text) {
  tag(field, WireType::delimited);
  varint(text.size());
  put(text);
}

void WireWriter::borrowed(uint64_t field, std::span<const std::byte> bytes) {
  tag(field, WireType::delimited);
  varint(bytes.size());
  if (bytes.empty()) return;
  pieces_.push_back({.borrowed = bytes});
  size_ += bytes.size();
}

void WireWriter::message(uint64_t field, WireWriter&& inner) {
  tag(field, WireType::delimited);
  varint(inner.size_);
  size_ += inner.size_;
  pieces_.splice(pieces_.end(), inner.pieces_);
}

void WireWriter::write(OutputFile& file) const {
  for (const Piece& piece : pieces_) {
    if (piece.borrowed.empty()) {
      file.write(piece.own);
    } else {
      file.write(piece.borrowed.data(), piece.borrowed.size());
    }
  }
}

}  // namespace millrace::models::onnx
