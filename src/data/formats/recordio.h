// MXNet RecordIO: a .rec file of framed records, with an .idx file of their offsets beside it.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/record_source.h"
#include "data/record_writer.h"

namespace millrace::data {

// One record: its key in the index (its number if there is no index) and byte offset.
struct RecordioEntry {
  uint64_t key = 0;
  uint64_t offset = 0;
};

// A record's payload. Points into the file if the record is in one piece, otherwise into
// `joined`.
struct RecordioPayload {
  std::span<const std::byte> bytes;
  std::vector<std::byte> joined;
  uint64_t end = 0;  // offset of the record after it
};

// Lists the records by walking the file; where the walk cannot go on, the damaged record is the
// last. Takes any bytes.
std::vector<RecordioEntry> scan_recordio(std::span<const std::byte> file);

// The record at this offset, parts joined. Takes any bytes and offset, throws BadData.
RecordioPayload read_recordio(std::span<const std::byte> file, uint64_t offset);

// Splits an image payload into labels and image. Takes any bytes, throws BadData.
Sample parse_image_record(RecordioPayload payload);

// Lines of `key TAB offset`. Throws InputError naming file and line.
std::vector<RecordioEntry> parse_recordio_index(std::string_view text, std::string_view file);

// Frames a payload, in several parts where it contains the magic number.
std::string encode_recordio(std::span<const std::byte> payload);

// `file` is the .rec; its .idx is used if it is there. A header record as InsightFace data sets
// have it (first key, labels but no image) limits the samples to the keys before its first label.
std::unique_ptr<RecordSource> open_recordio(const std::filesystem::path& file);
// "a.rec,b.rec" → the two files: a comma behind ".rec" ends a name. One file stays one.
std::vector<std::filesystem::path> recordio_files(std::string_view text);

// Several, one behind the other; labels of each file follow those of the files before it. Throws
// InputError for a file that does not tell in its header how many identities it has.
std::unique_ptr<RecordSource> open_recordio_files(const std::vector<std::filesystem::path>& files);
std::unique_ptr<RecordWriter> create_recordio(const std::filesystem::path& file);

// As InsightFace lays its sets out: record 0 is a header, samples have the keys from 1 on, and a
// record for each identity follows that says where its samples are. Exactly this many samples and
// identities must come, each identity's in a row with labels 0, 1, …; `finish` throws InputError
// otherwise.
std::unique_ptr<RecordWriter> create_face_recordio(const std::filesystem::path& file,
                                                   uint64_t samples, uint64_t identities);

}  // namespace millrace::data
