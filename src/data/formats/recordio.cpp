#include "data/formats/recordio.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_set>

#include "base/directory.h"
#include "base/file.h"
#include "base/output_file.h"
#include "data/formats/byte_cursor.h"
#include "data/image/codec.h"

namespace millrace::data {
namespace {

constexpr uint32_t kMagic = 0xced7230a;
constexpr uint32_t kLengthMask = (1u << 29) - 1;
constexpr uint64_t kFrameBytes = 8;
constexpr int64_t kLargestLabel = 1 << 24;  // a 32-bit float holds every whole number up to this

enum PartFlag : uint32_t { kWhole = 0, kFirst = 1, kMiddle = 2, kLast = 3 };

struct ImageHeader {
  uint32_t flag;
  float label;
  uint64_t id;
  uint64_t id2;
};
static_assert(sizeof(ImageHeader) == 24);

uint64_t padded(uint64_t size) { return (size + 3) / 4 * 4; }

struct Part {
  uint32_t flag;
  std::span<const std::byte> bytes;
  uint64_t end;
};

Part read_part(std::span<const std::byte> file, uint64_t offset) {
  if (offset > file.size() || file.size() - offset < kFrameBytes) {
    fail_data("the file ends inside its frame");
  }
  ByteCursor cursor(file.subspan(offset));
  const auto magic = cursor.little_endian<uint32_t>();
  if (magic != kMagic) {
    fail_data("it starts with 0x{:08x} where the magic number 0xced7230a belongs", magic);
  }
  const auto frame = cursor.little_endian<uint32_t>();
  const uint64_t length = frame & kLengthMask;
  if (length > cursor.rest().size()) {
    fail_data("it claims {} bytes where the file has {} left", length, cursor.rest().size());
  }
  const uint64_t end = std::min<uint64_t>(file.size(), offset + kFrameBytes + padded(length));
  return {frame >> 29, cursor.take(length), end};
}

void append(std::vector<std::byte>& joined, std::span<const std::byte> bytes) {
  joined.insert(joined.end(), bytes.begin(), bytes.end());
}

int64_t whole_label(float label) {
  if (!(std::abs(label) < 0x1.0p31f) || label != std::floor(label)) {
    fail_data("its label {} is not a whole number", label);
  }
  return static_cast<int64_t>(label);
}

class RecordioSource : public RecordSource {
 public:
  explicit RecordioSource(const std::filesystem::path& path) : path_(path.string()), file_(path) {
    std::filesystem::path index = path;
    index.replace_extension(".idx");
    entries_ = std::filesystem::exists(index)
                   ? parse_recordio_index(read_text(index), index.string())
                   : scan_recordio(file_.bytes());
    drop_header_record();
  }

  uint64_t count() const override { return entries_.size(); }

  Sample read(uint64_t index) const override {
    return parse_image_record(read_recordio(file_.bytes(), entries_[index].offset));
  }

  RecordPlace place(uint64_t index) const override {
    return {path_, entries_[index].key, entries_[index].offset};
  }
  int64_t classes() const override { return identities_; }

 private:
  void drop_header_record() {
    if (entries_.empty()) return;
    Sample header;
    try {
      header = read(0);
    } catch (const BadData&) {
      return;  // not a header; reported when the record is read
    }
    if (header.labels.empty() || !header.bytes.empty()) return;
    const uint64_t header_key = entries_.front().key;
    const float end_key = header.labels.front();
    if (header.labels.size() > 1 && header.labels[1] > end_key) {
      identities_ = static_cast<int64_t>(header.labels[1] - end_key);
    }
    std::erase_if(entries_, [&](const RecordioEntry& entry) {
      return entry.key == header_key || !(static_cast<float>(entry.key) < end_key);
    });
  }

  std::string path_;
  MappedFile file_;
  std::vector<RecordioEntry> entries_;
  int64_t identities_ = 0;  // that a header announces
};

void check_first_record(const RecordSource& file) {
  if (file.count() == 0) return;
  try {
    file.read(0);
  } catch (const BadData& error) {
    fail_input("{}", describe_bad_record(file.place(0), error.what()));
  }
}

class JoinedRecordio : public RecordSource {
 public:
  explicit JoinedRecordio(const std::vector<std::filesystem::path>& files) {
    for (const std::filesystem::path& path : files) {
      if (!std::filesystem::exists(path)) {
        fail_input("Data set '{}' does not exist.", path.string());
      }
      if (std::count(files.begin(), files.end(), path) > 1) {
        fail_input("'{}' is named twice, which would make two identities of each.", path.string());
      }
      parts_.push_back({std::make_unique<RecordioSource>(path), count_, classes_});
      const RecordSource& file = *parts_.back().file;
      if (file.classes() < 1) {
        check_first_record(file);
        fail_input(
            "'{}' does not tell how many identities it has, which takes a header record; it cannot "
            "be joined with others.",
            path.string());
      }
      count_ += file.count();
      classes_ += file.classes();
    }
  }

  uint64_t count() const override { return count_; }
  int64_t classes() const override { return classes_; }

  Sample read(uint64_t index) const override {
    const Part& part = part_of(index);
    Sample sample = part.file->read(index - part.first_record);
    if (sample.label < 0 || sample.label >= part.file->classes()) {
      fail_data("its label {} is not among the {} identities that its file announces", sample.label,
                part.file->classes());
    }
    sample.label += part.first_class;
    return sample;
  }

  RecordPlace place(uint64_t index) const override {
    const Part& part = part_of(index);
    return part.file->place(index - part.first_record);
  }

 private:
  struct Part {
    std::unique_ptr<RecordSource> file;
    uint64_t first_record;
    int64_t first_class;
  };

  const Part& part_of(uint64_t index) const {
    return *std::find_if(parts_.rbegin(), parts_.rend(),
                         [&](const Part& part) { return part.first_record <= index; });
  }

  std::vector<Part> parts_;
  uint64_t count_ = 0;
  int64_t classes_ = 0;
};

class RecordioWriter : public RecordWriter {
 public:
  explicit RecordioWriter(const std::filesystem::path& path)
      : records_(path), index_(index_path(path)) {
    if (path.extension() != ".rec") {
      fail_input("RecordIO output '{}' must end in .rec.", path.string());
    }
    if (std::filesystem::exists(path)) {
      fail_input("'{}' already exists; name a new file.", path.string());
    }
  }

  void add(const Sample& sample) override {
    if (std::abs(sample.label) > kLargestLabel) {
      fail_data("its label {} does not fit into RecordIO's 32-bit float", sample.label);
    }
    const EncodedImage image(sample);
    add_record(static_cast<float>(sample.label), sample.labels, image.bytes());
  }

  void finish() override {
    records_.commit();
    index_.commit();
  }

 protected:
  uint64_t next_key() const { return key_; }

  void add_record(float label, const std::vector<float>& labels, std::span<const std::byte> image) {
    ImageHeader header = {0, label, key_, 0};
    header.flag = static_cast<uint32_t>(labels.size());
    std::vector<std::byte> payload;
    append(payload, std::as_bytes(std::span(&header, 1)));
    append(payload, std::as_bytes(std::span(labels)));
    append(payload, image);
    if (payload.size() > kLengthMask) {
      fail_input("An image of {} bytes is too large for RecordIO.", payload.size());
    }
    const std::string framed = encode_recordio(payload);
    records_.write(framed);
    index_.write(fmt::format("{}\t{}\n", key_, offset_));
    offset_ += framed.size();
    ++key_;
  }

 private:
  static std::filesystem::path index_path(std::filesystem::path path) {
    return path.replace_extension(".idx");
  }

  OutputFile records_;
  OutputFile index_;
  uint64_t key_ = 0;
  uint64_t offset_ = 0;
};

class FaceRecordioWriter : public RecordioWriter {
 public:
  FaceRecordioWriter(const std::filesystem::path& path, uint64_t samples, uint64_t identities)
      : RecordioWriter(path), first_(samples + 1), end_(first_ + identities) {
    if (end_ > static_cast<uint64_t>(kLargestLabel)) {
      fail_input("{} images and identities are too many for RecordIO's 32-bit floats.", end_);
    }
    add_record(0, keys(first_, end_), {});
  }

  void add(const Sample& sample) override {
    if (sample.label != static_cast<int64_t>(starts_.size()) - 1) {
      starts_.push_back(next_key());
      in_order_ = in_order_ && sample.label == static_cast<int64_t>(starts_.size()) - 1;
    }
    RecordioWriter::add(sample);
  }

  void finish() override {
    if (!in_order_ || next_key() != first_ || starts_.size() != end_ - first_) {
      fail_input("The identities of a face set must come in order and in the number announced.");
    }
    starts_.push_back(first_);
    for (size_t i = 0; i + 1 < starts_.size(); ++i) {
      add_record(0, keys(starts_[i], starts_[i + 1]), {});
    }
    RecordioWriter::finish();
  }

 private:
  static std::vector<float> keys(uint64_t begin, uint64_t end) {
    return {static_cast<float>(begin), static_cast<float>(end)};
  }

  uint64_t first_;  // key of the first identity's record
  uint64_t end_;
  std::vector<uint64_t> starts_;  // key of each identity's first sample
  bool in_order_ = true;
};

}  // namespace

std::vector<RecordioEntry> scan_recordio(std::span<const std::byte> file) {
  std::vector<RecordioEntry> entries;
  uint64_t offset = 0;
  while (offset < file.size()) {
    entries.push_back({entries.size(), offset});
    try {
      Part part = read_part(file, offset);
      const bool whole = part.flag == kWhole;
      while (!whole && part.flag != kLast) part = read_part(file, part.end);
      offset = part.end;
    } catch (const BadData&) {
      break;
    }
  }
  return entries;
}

RecordioPayload read_recordio(std::span<const std::byte> file, uint64_t offset) {
  Part part = read_part(file, offset);
  if (part.flag == kWhole) return {part.bytes, {}, part.end};
  if (part.flag != kFirst) fail_data("it starts with a part that continues another record");
  RecordioPayload payload;
  append(payload.joined, part.bytes);
  while (part.flag != kLast) {
    part = read_part(file, part.end);
    if (part.flag != kMiddle && part.flag != kLast) fail_data("its last part is missing");
    append(payload.joined, std::as_bytes(std::span(&kMagic, 1)));
    append(payload.joined, part.bytes);
  }
  payload.end = part.end;
  payload.bytes = payload.joined;
  return payload;
}

Sample parse_image_record(RecordioPayload payload) {
  ByteCursor cursor(payload.bytes);
  const auto header = cursor.little_endian<ImageHeader>();
  Sample sample;
  if (header.flag > 0) {
    const auto labels = cursor.take(uint64_t{header.flag} * sizeof(float));
    sample.labels.resize(header.flag);
    std::memcpy(sample.labels.data(), labels.data(), labels.size());
  }
  sample.bytes = cursor.rest();
  sample.storage = std::move(payload.joined);
  const bool is_header_record = sample.bytes.empty() && header.flag > 0;
  if (!is_header_record) {
    sample.label = whole_label(header.flag > 0 ? sample.labels.front() : header.label);
  }
  return sample;
}

std::vector<RecordioEntry> parse_recordio_index(std::string_view text, std::string_view file) {
  std::vector<RecordioEntry> entries;
  std::unordered_set<uint64_t> keys;
  uint64_t line_number = 0;
  while (!text.empty()) {
    ++line_number;
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    RecordioEntry entry;
    const char* end = line.data() + line.size();
    const auto key = std::from_chars(line.data(), end, entry.key);
    const bool has_tab = key.ec == std::errc() && key.ptr != end && *key.ptr == '\t';
    const auto offset = has_tab ? std::from_chars(key.ptr + 1, end, entry.offset)
                                : std::from_chars_result{end, std::errc::invalid_argument};
    if (offset.ec != std::errc() || offset.ptr != end) {
      fail_input("Line {} of '{}' is not a key, a tab and an offset.", line_number, file);
    }
    if (!keys.insert(entry.key).second) {
      fail_input("Line {} of '{}' gives key {} a second time.", line_number, file, entry.key);
    }
    entries.push_back(entry);
  }
  return entries;
}

std::string encode_recordio(std::span<const std::byte> payload) {
  std::string framed;
  const auto put_part = [&](uint32_t flag, std::span<const std::byte> bytes) {
    const uint32_t frame[2] = {kMagic, flag << 29 | static_cast<uint32_t>(bytes.size())};
    framed.append(reinterpret_cast<const char*>(frame), sizeof(frame));
    framed.append(as_text(bytes));
    framed.resize(padded(framed.size()), '\0');
  };
  uint64_t start = 0;
  for (uint64_t i = 0; i + 4 <= payload.size(); i += 4) {
    if (std::memcmp(payload.data() + i, &kMagic, 4) != 0) continue;
    put_part(start == 0 ? kFirst : kMiddle, payload.subspan(start, i - start));
    start = i + 4;
  }
  put_part(start == 0 ? kWhole : kLast, payload.subspan(start));
  return framed;
}

std::unique_ptr<RecordSource> open_recordio(const std::filesystem::path& file) {
  return std::make_unique<RecordioSource>(file);
}

std::vector<std::filesystem::path> recordio_files(std::string_view text) {
  constexpr std::string_view kNext = ".rec,";
  std::vector<std::filesystem::path> files;
  for (size_t end = text.find(kNext); end != text.npos; end = text.find(kNext)) {
    files.emplace_back(text.substr(0, end + kNext.size() - 1));
    text.remove_prefix(end + kNext.size());
  }
  files.emplace_back(text);
  return files;
}

std::unique_ptr<RecordSource> open_recordio_files(const std::vector<std::filesystem::path>& files) {
  return std::make_unique<JoinedRecordio>(files);
}

std::unique_ptr<RecordWriter> create_recordio(const std::filesystem::path& file) {
  make_directory_of(file, "The data set");
  return std::make_unique<RecordioWriter>(file);
}

std::unique_ptr<RecordWriter> create_face_recordio(const std::filesystem::path& file,
                                                   uint64_t samples, uint64_t identities) {
  make_directory_of(file, "The data set");
  return std::make_unique<FaceRecordioWriter>(file, samples, identities);
}

}  // namespace millrace::data
