#include "data/safetensors.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace millrace::data {
namespace {

constexpr uint64_t kHeaderLengthBytes = 8;
constexpr uint64_t kHeaderLimit = 100'000'000;
constexpr std::string_view kMetadata = "__metadata__";

struct ElementType {
  std::string_view name;
  uint64_t size;
};

constexpr std::array<ElementType, 15> kTypes = {{{"F32", 4},
                                                 {"F16", 2},
                                                 {"BF16", 2},
                                                 {"I32", 4},
                                                 {"I64", 8},
                                                 {"U8", 1},
                                                 {"F64", 8},
                                                 {"F8_E4M3", 1},
                                                 {"F8_E5M2", 1},
                                                 {"I8", 1},
                                                 {"I16", 2},
                                                 {"U16", 2},
                                                 {"U32", 4},
                                                 {"U64", 8},
                                                 {"BOOL", 1}}};

std::optional<uint64_t> byte_count(std::string_view dtype, const std::vector<int64_t>& shape) {
  uint64_t total = safetensors_element_size(dtype);
  for (const int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(total, static_cast<uint64_t>(extent), &total)) {
      return std::nullopt;
    }
  }
  return total;
}

// Parses the header text, refusing duplicate names and deep nesting, which the format has not.
Json parse_header(std::string_view text, std::string_view file) {
  std::set<std::string> names;
  const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > 3) fail_input("'{}' is no safetensors file: its header is nested too deep.", file);
    if (event == Json::parse_event_t::key && depth == 1 &&
        !names.insert(value.get<std::string>()).second) {
      fail_input("'{}' names tensor '{}' twice in its safetensors header.", file,
                 value.get<std::string>());
    }
    return true;
  };
  Json header;
  try {
    header = Json::parse(text, check);
  } catch (const Json::exception&) {
    fail_input("'{}' is no safetensors file: its header is not valid JSON.", file);
  }
  if (!header.is_object()) {
    fail_input("'{}' is no safetensors file: its header is not a JSON object.", file);
  }
  return header;
}

uint64_t unsigned_number(const Json& value) {
  return value.is_number_unsigned() ? value.get<uint64_t>() : UINT64_MAX;
}

SafetensorsEntry parse_entry(const std::string& name, const Json& value,
                             std::span<const std::byte> data, std::string_view file) {
  const auto field = [&](const char* key) -> const Json& {
    const auto found = value.is_object() ? value.find(key) : value.end();
    if (!value.is_object() || found == value.end()) {
      fail_input("'{}' gives no {} for tensor '{}'.", file, key, name);
    }
    return *found;
  };
  SafetensorsEntry entry{.name = name, .dtype = {}, .shape = {}, .data = {}};
  const Json& dtype = field("dtype");
  if (dtype.is_string()) entry.dtype = dtype.get<std::string>();
  if (safetensors_element_size(entry.dtype) == 0) {
    fail_input("'{}' gives tensor '{}' the unknown type '{}'.", file, name, entry.dtype);
  }
  const Json& shape = field("shape");
  bool shape_is_valid = shape.is_array();
  if (shape_is_valid) {
    for (const Json& extent : shape) {
      const uint64_t number = unsigned_number(extent);
      shape_is_valid = shape_is_valid && number <= INT64_MAX;
      entry.shape.push_back(static_cast<int64_t>(number));
    }
  }
  if (!shape_is_valid) fail_input("'{}' gives tensor '{}' an invalid shape.", file, name);
  const Json& offsets = field("data_offsets");
  uint64_t begin = UINT64_MAX;
  uint64_t end = 0;
  if (offsets.is_array() && offsets.size() == 2) {
    begin = unsigned_number(offsets[0]);
    end = unsigned_number(offsets[1]);
  }
  if (begin > end || end > data.size()) {
    fail_input("'{}' places tensor '{}' outside its {} bytes of data; the file may be cut off.",
               file, name, data.size());
  }
  const std::optional<uint64_t> expected = byte_count(entry.dtype, entry.shape);
  if (!expected || *expected != end - begin) {
    fail_input("'{}' gives tensor '{}' {} bytes, which does not match its type and shape.", file,
               name, end - begin);
  }
  entry.data = data.subspan(begin, end - begin);
  return entry;
}

std::map<std::string, std::string> parse_metadata(const Json& value, std::string_view file) {
  std::map<std::string, std::string> metadata;
  bool valid = value.is_object();
  if (valid) {
    for (const auto& [key, text] : value.items()) {
      valid = valid && text.is_string();
      if (valid) metadata[key] = text.get<std::string>();
    }
  }
  if (!valid) fail_input("'{}' has {} that is not a map of strings.", file, kMetadata);
  return metadata;
}

}  // namespace

uint64_t safetensors_element_size(std::string_view dtype) {
  for (const ElementType& type : kTypes) {
    if (type.name == dtype) return type.size;
  }
  return 0;
}

SafetensorsContents parse_safetensors(std::span<const std::byte> bytes, std::string_view file) {
  if (bytes.size() < kHeaderLengthBytes) {
    fail_input("'{}' is no safetensors file: it has {} bytes, fewer than the header length takes.",
               file, bytes.size());
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kHeaderLengthBytes);
  if (length > bytes.size() - kHeaderLengthBytes || length > kHeaderLimit) {
    fail_input("'{}' is no safetensors file or is cut off: its header claims {} bytes.", file,
               length);
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kHeaderLengthBytes,
                              length);
  const std::span<const std::byte> data = bytes.subspan(kHeaderLengthBytes + length);
  const Json header = parse_header(text, file);

  SafetensorsContents contents;
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadata) {
      contents.metadata = parse_metadata(value, file);
    } else {
      contents.entries.push_back(parse_entry(name, value, data, file));
    }
  }
  const auto begin_of = [&](const SafetensorsEntry& entry) {
    return static_cast<uint64_t>(entry.data.data() - data.data());
  };
  std::stable_sort(contents.entries.begin(), contents.entries.end(),
                   [&](const SafetensorsEntry& first, const SafetensorsEntry& second) {
                     return std::pair(begin_of(first), first.data.size()) <
                            std::pair(begin_of(second), second.data.size());
                   });
  uint64_t position = 0;
  for (const SafetensorsEntry& entry : contents.entries) {
    if (begin_of(entry) != position) {
      fail_input("'{}' places tensor '{}' at data offset {} where {} was expected.", file,
                 entry.name, begin_of(entry), position);
    }
    position += entry.data.size();
  }
  if (position != data.size()) {
    fail_input("'{}' has {} bytes of data after its last tensor.", file, data.size() - position);
  }
  return contents;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path), file_(path), contents_(parse_safetensors(file_.bytes(), path.string())) {
  for (size_t i = 0; i < contents_.entries.size(); ++i) by_name_[contents_.entries[i].name] = i;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &contents_.entries[found->second];
}

const SafetensorsEntry& SafetensorsFile::at(std::string_view name) const {
  if (const SafetensorsEntry* entry = find(name)) return *entry;
  std::vector<std::string> names;
  for (const SafetensorsEntry& entry : contents_.entries) names.push_back(entry.name);
  const std::string close = nearest(name, names);
  fail_input("'{}' has no tensor '{}'{}.", path_.string(), name,
             close.empty() ? "" : fmt::format("; the nearest name is '{}'", close));
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::span<const SafetensorsTensor> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path), file_(path) {
  Json header = Json::object();
  if (!metadata.empty()) header[std::string(kMetadata)] = metadata;
  std::set<std::string_view> names;
  for (const SafetensorsTensor& tensor : tensors) {
    const std::optional<uint64_t> size = byte_count(tensor.dtype, tensor.shape);
    if (safetensors_element_size(tensor.dtype) == 0 || !size) {
      fail_input("Cannot write '{}': tensor '{}' has type '{}' or a shape that the format lacks.",
                 path.string(), tensor.name, tensor.dtype);
    }
    if (tensor.name == kMetadata || !names.insert(tensor.name).second) {
      fail_input("Cannot write '{}': the tensor name '{}' is taken.", path.string(), tensor.name);
    }
    Json& entry = header[tensor.name];
    entry["dtype"] = tensor.dtype;
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {remaining_, remaining_ + *size};
    remaining_ += *size;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception&) {
    fail_input("Cannot write '{}': a tensor name or metadata is not UTF-8 text.", path.string());
  }
  text.resize((text.size() + kHeaderLengthBytes - 1) / kHeaderLengthBytes * kHeaderLengthBytes,
              ' ');
  const uint64_t length = text.size();
  put(&length, kHeaderLengthBytes);
  put(text.data(), text.size());
}

void SafetensorsWriter::put(const void* data, uint64_t size) {
  constexpr uint64_t kPiece = uint64_t{1} << 18;  // still in the cache when it is written
  const auto* cursor = static_cast<const Bytef*>(data);
  for (uint64_t done = 0; done < size; done += kPiece) {
    const uint64_t piece = std::min(kPiece, size - done);
    written_.crc32 = static_cast<uint32_t>(::crc32_z(written_.crc32, cursor + done, piece));
    file_.write(cursor + done, piece);
  }
  written_.bytes += size;
}

void SafetensorsWriter::append(const void* data, uint64_t size) {
  if (size > remaining_) {
    fail_input("Cannot write '{}': {} bytes more than its tensors hold.", path_.string(),
               size - remaining_);
  }
  put(data, size);
  remaining_ -= size;
}

SafetensorsWriter::Written SafetensorsWriter::commit() {
  if (remaining_ != 0) {
    fail_input("Cannot write '{}': {} bytes of its tensors are missing.", path_.string(),
               remaining_);
  }
  file_.commit();
  return written_;
}

SafetensorsWriter::Written write_safetensors(const std::filesystem::path& path,
                                             std::span<const SafetensorsTensor> tensors,
                                             const std::map<std::string, std::string>& metadata) {
  std::vector<SafetensorsTensor> ordered(tensors.begin(), tensors.end());
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const SafetensorsTensor& first, const SafetensorsTensor& second) {
                     return safetensors_element_size(first.dtype) >
                            safetensors_element_size(second.dtype);
                   });
  SafetensorsWriter writer(path, ordered, metadata);
  for (const SafetensorsTensor& tensor : ordered) {
    if (tensor.size != byte_count(tensor.dtype, tensor.shape)) {
      fail_input("Cannot write '{}': tensor '{}' has {} bytes, which its shape does not take.",
                 path.string(), tensor.name, tensor.size);
    }
    writer.append(tensor.data, tensor.size);
  }
  return writer.commit();
}

}  // namespace millrace::data
