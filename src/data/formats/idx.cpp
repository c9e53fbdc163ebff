#include "data/formats/idx.h"

#include <zlib.h>

#include <algorithm>
#include <string>

#include "base/file.h"
#include "base/output_file.h"
#include "data/formats/byte_cursor.h"
#include "data/formats/pixel_spool.h"
#include "data/image/image.h"

namespace millrace::data {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;
constexpr uint64_t kUnpackedLimit = uint64_t{8} << 30;

std::string stem(Split split) { return split == Split::train ? "train" : "t10k"; }

// A file's bytes, unpacked if they are gzipped.
class IdxFile {
 public:
  explicit IdxFile(const std::filesystem::path& plain) : path_(plain) {
    if (!std::filesystem::exists(path_)) path_ += ".gz";
    if (!std::filesystem::exists(path_)) {
      fail_input("Neither '{}' nor the same with .gz exists.", plain.string());
    }
    file_ = MappedFile(path_);
    use(file_.bytes());
  }
  IdxFile(std::span<const std::byte> bytes, std::string_view name) : path_(name) { use(bytes); }

  std::string name() const { return path_.string(); }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  void use(std::span<const std::byte> bytes) {
    bytes_ = bytes;
    if (as_text(bytes_).starts_with("\x1f\x8b")) {
      unpacked_ = gunzip(bytes_, path_.string());
      bytes_ = unpacked_;
    }
  }

  std::filesystem::path path_;
  MappedFile file_;
  std::vector<std::byte> unpacked_;
  std::span<const std::byte> bytes_;
};

class IdxSource : public RecordSource {
 public:
  IdxSource(IdxFile images, IdxFile labels)
      : images_(std::move(images)),
        labels_(std::move(labels)),
        pixels_(parse_idx(images_.bytes(), images_.name())),
        classes_(parse_idx(labels_.bytes(), labels_.name())) {
    if (classes_.shape.size() != 1) {
      fail_input("'{}' holds {} dimensions where labels have one.", labels_.name(),
                 classes_.shape.size());
    }
    const auto& shape = pixels_.shape;
    const bool known = shape.size() == 3 || (shape.size() == 4 && (shape[3] == 1 || shape[3] == 3));
    if (!known || shape[1] == 0 || shape[2] == 0 ||
        uint64_t{shape[1]} * shape[2] > static_cast<uint64_t>(kMaxPixels)) {
      fail_input("'{}' does not hold images of count × height × width bytes.", images_.name());
    }
    if (shape[0] != classes_.shape[0]) {
      fail_input("'{}' holds {} images but '{}' holds {} labels.", images_.name(), shape[0],
                 labels_.name(), classes_.shape[0]);
    }
    channels_ = shape.size() == 4 ? static_cast<int>(shape[3]) : 1;
    image_size_ = uint64_t{shape[1]} * shape[2] * static_cast<uint64_t>(channels_);
    // A cut-off file gives its whole images and one more record, which tells of the damage.
    const uint64_t whole =
        std::min<uint64_t>(pixels_.data.size() / image_size_, classes_.data.size());
    count_ = std::min<uint64_t>(shape[0], whole + 1);
  }

  uint64_t count() const override { return count_; }

  Sample read(uint64_t index) const override {
    if (index >= classes_.data.size() || pixels_.data.size() < image_size_ * (index + 1)) {
      fail_data("the file ends before record {} of {}", index, pixels_.shape[0]);
    }
    Sample sample;
    sample.bytes = pixels_.data.subspan(image_size_ * index, image_size_);
    sample.height = static_cast<int>(pixels_.shape[1]);
    sample.width = static_cast<int>(pixels_.shape[2]);
    sample.channels = channels_;
    sample.label = static_cast<int64_t>(classes_.data[index]);
    return sample;
  }

  int64_t classes() const override {
    const auto largest = std::max_element(classes_.data.begin(), classes_.data.end());
    return largest == classes_.data.end() ? 0 : static_cast<int64_t>(*largest) + 1;
  }

  // The damaged record at the end of a cut-off file has perhaps none.
  std::optional<int64_t> label(uint64_t index) const override {
    if (index >= classes_.data.size()) return {};
    return static_cast<int64_t>(classes_.data[index]);
  }

  RecordPlace place(uint64_t index) const override {
    const auto header = static_cast<uint64_t>(pixels_.data.data() - images_.bytes().data());
    return {images_.name(), index, header + image_size_ * index};
  }

 private:
  IdxFile images_;
  IdxFile labels_;
  IdxArray pixels_;
  IdxArray classes_;
  int channels_ = 1;
  uint64_t image_size_ = 0;
  uint64_t count_ = 0;
};

std::string idx_header(const std::vector<uint32_t>& shape) {
  std::string header = {0, 0, static_cast<char>(kUnsignedByte), static_cast<char>(shape.size())};
  for (const uint32_t extent : shape) {
    const uint32_t swapped = __builtin_bswap32(extent);
    header.append(reinterpret_cast<const char*>(&swapped), sizeof(swapped));
  }
  return header;
}

class IdxWriter : public RecordWriter {
 public:
  IdxWriter(const std::filesystem::path& directory, Split split)
      : images_(directory / (stem(split) + "-images-idx3-ubyte")),
        labels_(directory / (stem(split) + "-labels-idx1-ubyte")) {
    make_directory(directory, "The data set");
    if (std::filesystem::exists(images_) || std::filesystem::exists(images_.string() + ".gz")) {
      fail_input("'{}' already exists; name a new directory.", images_.string());
    }
    spool_ = std::make_unique<PixelSpool>(directory);
  }

  void add(const Sample& sample) override {
    if (sample.label < 0 || sample.label > 255) {
      fail_data("its label {} does not fit into the one byte that IDX has", sample.label);
    }
    spool_->add(sample);
  }

  void finish() override {
    const auto count = static_cast<uint32_t>(spool_->labels().size());
    std::vector<uint32_t> shape = {count, static_cast<uint32_t>(spool_->height()),
                                   static_cast<uint32_t>(spool_->width())};
    if (spool_->channels() > 1) shape.push_back(static_cast<uint32_t>(spool_->channels()));
    OutputFile images(images_);
    images.write(idx_header(shape));
    spool_->copy([&](const void* data, uint64_t size) { images.write(data, size); });
    OutputFile labels(labels_);
    labels.write(idx_header({count}));
    labels.write(std::string(spool_->labels().begin(), spool_->labels().end()));
    images.commit();
    labels.commit();
  }

 private:
  std::filesystem::path images_;
  std::filesystem::path labels_;
  std::unique_ptr<PixelSpool> spool_;
};

}  // namespace

IdxArray parse_idx(std::span<const std::byte> bytes, std::string_view file) {
  try {
    ByteCursor cursor(bytes);
    const auto zeros = cursor.little_endian<uint16_t>();
    const auto type = cursor.little_endian<uint8_t>();
    const auto dimensions = cursor.little_endian<uint8_t>();
    if (zeros != 0 || type != kUnsignedByte || dimensions == 0 || dimensions > 4) {
      fail_input("'{}' is no IDX file of bytes: it does not start with 0, 0, 8 and 1 to 4.", file);
    }
    IdxArray array;
    for (int i = 0; i < dimensions; ++i) array.shape.push_back(cursor.big_endian_32());
    array.data = cursor.rest();
    return array;
  } catch (const BadData&) {
    fail_input("'{}' is no IDX file: it ends inside its header.", file);
  }
}

std::vector<std::byte> gunzip(std::span<const std::byte> bytes, std::string_view file) {
  z_stream stream = {};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) fail_job("zlib cannot be initialised.");
  struct Cleanup {
    z_stream& stream;
    ~Cleanup() { inflateEnd(&stream); }
  } cleanup{stream};
  std::vector<std::byte> unpacked;
  uint64_t produced = 0;
  int status = Z_OK;
  while (status == Z_OK) {
    if (stream.avail_in == 0) {
      const uint64_t consumed = static_cast<uint64_t>(stream.total_in);
      stream.avail_in =
          static_cast<unsigned>(std::min<uint64_t>(bytes.size() - consumed, 1u << 30));
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data() + consumed));
      if (stream.avail_in == 0) break;
    }
    if (produced == unpacked.size()) {
      if (produced >= kUnpackedLimit) fail_input("'{}' unpacks to more than 8 GiB.", file);
      unpacked.resize(std::max<uint64_t>(64 * 1024, produced * 2));
    }
    stream.next_out = reinterpret_cast<Bytef*>(unpacked.data() + produced);
    stream.avail_out =
        static_cast<unsigned>(std::min<uint64_t>(unpacked.size() - produced, 1u << 30));
    const unsigned room = stream.avail_out;
    status = inflate(&stream, Z_NO_FLUSH);
    produced += room - stream.avail_out;
  }
  if (status != Z_STREAM_END) {
    fail_input("'{}' is damaged at byte {}: {}.", file, static_cast<uint64_t>(stream.total_in),
               status == Z_OK || stream.msg == nullptr ? "its gzip data end early" : stream.msg);
  }
  unpacked.resize(produced);
  return unpacked;
}

std::unique_ptr<RecordSource> open_idx(const std::filesystem::path& directory, Split split) {
  return std::make_unique<IdxSource>(IdxFile(directory / (stem(split) + "-images-idx3-ubyte")),
                                     IdxFile(directory / (stem(split) + "-labels-idx1-ubyte")));
}

std::unique_ptr<RecordSource> open_idx_bytes(std::span<const std::byte> images,
                                             std::span<const std::byte> labels,
                                             std::string_view name) {
  return std::make_unique<IdxSource>(IdxFile(images, name), IdxFile(labels, name));
}

std::unique_ptr<RecordWriter> create_idx(const std::filesystem::path& directory, Split split) {
  return std::make_unique<IdxWriter>(directory, split);
}

}  // namespace millrace::data
