#include "data/formats/ofrecord.h"

#include <algorithm>
#include <optional>

#include "base/file.h"
#include "base/output_file.h"
#include "data/formats/byte_cursor.h"
#include "data/image/codec.h"

namespace millrace::data {
namespace {

constexpr uint64_t kRecordLengthBytes = 8;
constexpr std::string_view kPartPrefix = "part-";
constexpr std::string_view kImageKey = "encoded";
constexpr std::string_view kLabelKey = "class/label";

enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kDelimited = 2, kFixed32 = 5 };
enum FeatureKind : uint64_t { kBytes = 1, kInt32 = 4, kInt64 = 5 };

struct Field {
  uint64_t number = 0;
  uint64_t wire_type = 0;
  uint64_t value = 0;
  std::span<const std::byte> bytes;
};

Field next_field(ByteCursor& cursor) {
  Field field;
  const uint64_t tag = cursor.varint();
  field.number = tag >> 3;
  field.wire_type = tag & 7;
  switch (field.wire_type) {
    case kVarint:
      field.value = cursor.varint();
      break;
    case kFixed64:
      cursor.take(8);
      break;
    case kDelimited:
      field.bytes = cursor.take(cursor.varint());
      break;
    case kFixed32:
      cursor.take(4);
      break;
    default:
      fail_data("its protobuf message has the unknown wire type {}", field.wire_type);
  }
  return field;
}

// The first value of a feature's list, if the list is of the kind that is asked for.
struct FirstValue {
  std::optional<std::span<const std::byte>> bytes;
  std::optional<int64_t> number;
};

FirstValue first_value(std::span<const std::byte> feature) {
  FirstValue first;
  ByteCursor lists(feature);
  while (!lists.empty()) {
    const Field list = next_field(lists);
    if (list.wire_type != kDelimited) continue;
    first = {};
    ByteCursor values(list.bytes);
    while (!values.empty()) {
      const Field value = next_field(values);
      if (value.number != 1) continue;
      if (list.number == kBytes && value.wire_type == kDelimited) {
        if (!first.bytes) first.bytes = value.bytes;
      } else if (list.number == kInt32 || list.number == kInt64) {
        if (first.number) continue;
        if (value.wire_type == kVarint) first.number = static_cast<int64_t>(value.value);
        if (value.wire_type == kDelimited && !value.bytes.empty()) {
          first.number = static_cast<int64_t>(ByteCursor(value.bytes).varint());
        }
      }
    }
  }
  return first;
}

void put_varint(std::string& out, uint64_t number) {
  for (; number >= 0x80; number >>= 7) out += static_cast<char>(number | 0x80);
  out += static_cast<char>(number);
}

void put_delimited(std::string& out, uint64_t field, std::string_view bytes) {
  put_varint(out, field << 3 | kDelimited);
  put_varint(out, bytes.size());
  out += bytes;
}

void put_feature(std::string& out, std::string_view key, uint64_t kind, std::string_view value) {
  std::string list;
  put_delimited(list, 1, value);
  std::string feature;
  put_delimited(feature, kind, list);
  std::string entry;
  put_delimited(entry, 1, key);
  put_delimited(entry, 2, feature);
  put_delimited(out, 1, entry);
}

std::vector<std::filesystem::path> part_files(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    const bool numbered =
        name.starts_with(kPartPrefix) && name.size() > kPartPrefix.size() &&
        name.find_first_not_of("0123456789", kPartPrefix.size()) == std::string::npos;
    if (numbered) files.push_back(entry.path());
  }
  if (error) fail_input("Cannot read directory '{}': {}.", directory.string(), error.message());
  std::sort(files.begin(), files.end(), [](const auto& first, const auto& second) {
    const std::string a = first.filename().string();
    const std::string b = second.filename().string();
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  });
  return files;
}

class OfrecordSource : public RecordSource {
 public:
  explicit OfrecordSource(const std::filesystem::path& directory) {
    for (const auto& path : part_files(directory)) {
      parts_.push_back({path.string(), MappedFile(path), count_, {}});
      parts_.back().entries = scan_ofrecord(parts_.back().file.bytes());
      count_ += parts_.back().entries.size();
    }
    if (parts_.empty()) {
      fail_input("Directory '{}' has no OFRecord files named part-00000 and so on.",
                 directory.string());
    }
  }

  uint64_t count() const override { return count_; }

  Sample read(uint64_t index) const override {
    const Part& part = part_of(index);
    const OfrecordEntry& entry = part.entries[index - part.first];
    if (!entry.damage.empty()) throw BadData(entry.damage);
    return parse_ofrecord(
        part.file.bytes().subspan(entry.offset + kRecordLengthBytes, entry.length));
  }

  RecordPlace place(uint64_t index) const override {
    const Part& part = part_of(index);
    return {part.path, index - part.first, part.entries[index - part.first].offset};
  }

 private:
  struct Part {
    std::string path;
    MappedFile file;
    uint64_t first;
    std::vector<OfrecordEntry> entries;
  };

  const Part& part_of(uint64_t index) const {
    const auto after =
        std::upper_bound(parts_.begin(), parts_.end(), index,
                         [](uint64_t wanted, const Part& part) { return wanted < part.first; });
    return *std::prev(after);
  }

  std::vector<Part> parts_;
  uint64_t count_ = 0;
};

class OfrecordWriter : public RecordWriter {
 public:
  OfrecordWriter(std::filesystem::path directory, uint64_t part_bytes)
      : directory_(std::move(directory)), part_bytes_(part_bytes) {
    make_directory(directory_, "The data set");
    if (!part_files(directory_).empty()) {
      fail_input("'{}' already holds OFRecord files; name a new directory.", directory_.string());
    }
  }

  void add(const Sample& sample) override {
    const EncodedImage image(sample);
    const std::string message = encode_ofrecord(image.bytes(), sample.label);
    if (file_ && written_ + message.size() > part_bytes_) close_part();
    if (!file_) {
      file_ = std::make_unique<OutputFile>(directory_ / fmt::format("part-{:05}", next_part_++));
    }
    const auto length = static_cast<int64_t>(message.size());
    file_->write(&length, kRecordLengthBytes);
    file_->write(message);
    written_ += kRecordLengthBytes + message.size();
  }

  void finish() override {
    if (next_part_ == 0) {
      file_ = std::make_unique<OutputFile>(directory_ / fmt::format("part-{:05}", next_part_++));
    }
    if (file_) close_part();
  }

 private:
  void close_part() {
    file_->commit();
    file_.reset();
    written_ = 0;
  }

  std::filesystem::path directory_;
  uint64_t part_bytes_;
  std::unique_ptr<OutputFile> file_;
  uint64_t written_ = 0;
  int next_part_ = 0;
};

}  // namespace

std::vector<OfrecordEntry> scan_ofrecord(std::span<const std::byte> file) {
  std::vector<OfrecordEntry> entries;
  uint64_t offset = 0;
  while (offset < file.size()) {
    const uint64_t left = file.size() - offset;
    if (left < kRecordLengthBytes) {
      entries.push_back(
          {offset, 0, fmt::format("the file ends after {} bytes of its length", left)});
      break;
    }
    int64_t length = 0;
    std::memcpy(&length, file.data() + offset, kRecordLengthBytes);
    if (length < 0 || static_cast<uint64_t>(length) > left - kRecordLengthBytes) {
      entries.push_back({offset, 0,
                         fmt::format("it claims {} bytes where the file has {} left, so nothing "
                                     "after it can be read",
                                     length, left - kRecordLengthBytes)});
      break;
    }
    entries.push_back({offset, static_cast<uint64_t>(length), {}});
    offset += kRecordLengthBytes + static_cast<uint64_t>(length);
  }
  return entries;
}

Sample parse_ofrecord(std::span<const std::byte> message) {
  Sample sample;
  std::optional<std::span<const std::byte>> image;
  std::optional<int64_t> label;
  ByteCursor cursor(message);
  while (!cursor.empty()) {
    const Field entry = next_field(cursor);
    if (entry.number != 1 || entry.wire_type != kDelimited) continue;
    std::string_view key;
    std::span<const std::byte> feature;
    ByteCursor parts(entry.bytes);
    while (!parts.empty()) {
      const Field part = next_field(parts);
      if (part.number == 1) key = as_text(part.bytes);
      if (part.number == 2) feature = part.bytes;
    }
    if (key == kImageKey) image = first_value(feature).bytes;
    if (key == kLabelKey) label = first_value(feature).number;
  }
  if (!image) fail_data("it has no bytes under '{}'", kImageKey);
  if (!label) fail_data("it has no whole number under '{}'", kLabelKey);
  sample.bytes = *image;
  sample.label = *label;
  return sample;
}

std::string encode_ofrecord(std::span<const std::byte> image, int64_t label) {
  std::string number;
  put_varint(number, static_cast<uint64_t>(label));
  std::string message;
  message.reserve(image.size() + 64);
  put_feature(message, kImageKey, kBytes, as_text(image));
  put_feature(message, kLabelKey, kInt32, number);
  return message;
}

std::unique_ptr<RecordSource> open_ofrecord(const std::filesystem::path& directory) {
  return std::make_unique<OfrecordSource>(directory);
}

std::unique_ptr<RecordWriter> create_ofrecord(const std::filesystem::path& directory,
                                              const WriterOptions& options) {
  return std::make_unique<OfrecordWriter>(directory, options.part_bytes);
}

}  // namespace millrace::data
