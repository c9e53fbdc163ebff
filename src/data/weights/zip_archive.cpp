#include "data/weights/zip_archive.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "data/formats/byte_cursor.h"

namespace millrace::data {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kDirectoryEntry = 0x02014b50;
constexpr uint32_t kDirectoryEnd = 0x06054b50;
constexpr uint32_t kLargeDirectoryEnd = 0x06064b50;
constexpr uint32_t kLargeLocator = 0x07064b50;
constexpr uint64_t kDirectoryEndSize = 22;
constexpr uint64_t kLocatorSize = 20;
constexpr uint64_t kLocalHeaderSize = 30;
constexpr uint16_t kLargeField = 1;
constexpr uint32_t kInLargeField = 0xFFFFFFFF;  // the number is in the field for large ones

struct DirectoryPlace {
  uint64_t offset = 0;
  uint64_t size = 0;
  uint64_t count = 0;
};

ByteCursor cursor_at(std::span<const std::byte> bytes, uint64_t offset) {
  if (offset > bytes.size()) fail_data("its zip directory points behind its end");
  return ByteCursor(bytes.subspan(offset));
}

uint32_t word_at(std::span<const std::byte> bytes, uint64_t offset) {
  uint32_t word = 0;
  std::memcpy(&word, bytes.data() + offset, sizeof(word));
  return word;
}

// The record at the end, behind which there may be a comment.
uint64_t end_of_directory(std::span<const std::byte> bytes) {
  constexpr uint64_t kLongestComment = 65535;
  if (bytes.size() < kDirectoryEndSize) fail_data("it is cut off: its zip directory is missing");
  const uint64_t last = bytes.size() - kDirectoryEndSize;
  const uint64_t first = last - std::min(last, kLongestComment);
  for (uint64_t at = last + 1; at-- > first;) {
    if (word_at(bytes, at) == kDirectoryEnd) return at;
  }
  fail_data("it is cut off: its zip directory is missing");
}

DirectoryPlace find_directory(std::span<const std::byte> bytes) {
  const uint64_t end = end_of_directory(bytes);
  ByteCursor cursor = cursor_at(bytes, end + 10);
  DirectoryPlace place;
  place.count = cursor.little_endian<uint16_t>();
  place.size = cursor.little_endian<uint32_t>();
  place.offset = cursor.little_endian<uint32_t>();
  if (end < kLocatorSize || word_at(bytes, end - kLocatorSize) != kLargeLocator) return place;
  ByteCursor locator = cursor_at(bytes, end - kLocatorSize + 8);
  ByteCursor large = cursor_at(bytes, locator.little_endian<uint64_t>());
  if (large.little_endian<uint32_t>() != kLargeDirectoryEnd) {
    fail_data("its zip directory for large files is damaged");
  }
  large.take(28);
  place.count = large.little_endian<uint64_t>();
  place.size = large.little_endian<uint64_t>();
  place.offset = large.little_endian<uint64_t>();
  return place;
}

}  // namespace

ZipArchive::ZipArchive(std::span<const std::byte> bytes) : bytes_(bytes) {
  const DirectoryPlace place = find_directory(bytes);
  ByteCursor cursor = cursor_at(bytes, place.offset);
  read_directory(cursor.take(place.size), place.count);
  if (members_.empty()) return;
  folder_ = members_.begin()->first.substr(0, members_.begin()->first.find('/') + 1);
  for (const auto& [name, member] : members_) {
    if (!name.starts_with(folder_)) folder_.clear();
  }
}

void ZipArchive::read_directory(std::span<const std::byte> directory, uint64_t count) {
  ByteCursor cursor(directory);
  for (uint64_t i = 0; i < count; ++i) {
    if (cursor.little_endian<uint32_t>() != kDirectoryEntry) {
      fail_data("entry {} of its zip directory is damaged", i);
    }
    cursor.take(4);  // versions
    const auto flags = cursor.little_endian<uint16_t>();
    Member member;
    member.method = cursor.little_endian<uint16_t>();
    cursor.take(4);  // date and time
    member.crc32 = cursor.little_endian<uint32_t>();
    const uint64_t packed = cursor.little_endian<uint32_t>();
    member.size = cursor.little_endian<uint32_t>();
    const auto name_size = cursor.little_endian<uint16_t>();
    const auto extra_size = cursor.little_endian<uint16_t>();
    const auto comment_size = cursor.little_endian<uint16_t>();
    cursor.take(8);  // disk, attributes
    member.header = cursor.little_endian<uint32_t>();
    const std::string name(as_text(cursor.take(name_size)));
    ByteCursor extra(cursor.take(extra_size));
    cursor.take(comment_size);
    while (!extra.empty()) {
      const auto kind = extra.little_endian<uint16_t>();
      ByteCursor field(extra.take(extra.little_endian<uint16_t>()));
      if (kind != kLargeField) continue;
      if (member.size == kInLargeField) member.size = field.little_endian<uint64_t>();
      if (packed == kInLargeField) field.take(8);
      if (member.header == kInLargeField) member.header = field.little_endian<uint64_t>();
    }
    if ((flags & 1) != 0) fail_data("member '{}' of its zip archive is encrypted", name);
    if (!members_.emplace(name, member).second) {
      fail_data("its zip archive has two members '{}'", name);
    }
  }
}

std::optional<std::span<const std::byte>> ZipArchive::find(std::string_view name,
                                                           bool checked) const {
  const auto found = members_.find(folder_ + std::string(name));
  if (found == members_.end()) return {};
  const Member& member = found->second;
  if (member.method != 0) {
    fail_data("member '{}' of its zip archive is compressed; save it again with torch.save", name);
  }
  ByteCursor header = cursor_at(bytes_, member.header);
  if (header.little_endian<uint32_t>() != kLocalHeader) {
    fail_data("member '{}' of its zip archive is damaged", name);
  }
  header.take(kLocalHeaderSize - sizeof(uint32_t) - 4);
  const auto name_size = header.little_endian<uint16_t>();
  const auto extra_size = header.little_endian<uint16_t>();
  header.take(uint64_t{name_size} + extra_size);
  const std::span<const std::byte> content = header.take(member.size);
  // Writers may leave the checksum out.
  if (checked && member.crc32 != 0 &&
      ::crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()) !=
          member.crc32) {
    fail_data("member '{}' of its zip archive does not match its checksum", name);
  }
  return content;
}

}  // namespace millrace::data
