// Data sets as numbered records, whatever the format on disk.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/sample.h"

namespace millrace::data {

// Where a record lies, for messages: the record's number and byte offset within its file.
struct RecordPlace {
  std::string file;
  uint64_t record = 0;
  uint64_t offset = 0;
  bool is_file = false;  // the record is the whole file
};

// Random access to the records of a data set. Immutable once opened: `read` and `place` may be
// called from any number of threads. `index` is below count().
class RecordSource {
 public:
  virtual ~RecordSource() = default;

  // Damage that hides the rest of a file counts as one record, which fails when read.
  virtual uint64_t count() const = 0;
  // Throws BadData if the record is damaged. The sample must not outlive the source.
  virtual Sample read(uint64_t index) const = 0;
  virtual RecordPlace place(uint64_t index) const = 0;
  // Names in label order where the format has them, else empty.
  virtual std::vector<std::string> class_names() const { return {}; }
  // One above the largest label where the format tells without reading every record; else 0.
  virtual int64_t classes() const { return 0; }
  // The label of a record where the format has it without reading the record.
  virtual std::optional<int64_t> label(uint64_t) const { return {}; }
  // Files among the records that are none by their names, and are left out.
  virtual std::vector<std::string> passed_over() const { return {}; }
};

enum class Split { train, test };

// Opens "ofrecord:DIR", "recordio:FILE.rec" (or several, "recordio:A.rec,B.rec", whose identities
// are different people), "folder:DIR", "idx:DIR" or "raw:FILE". `split`
// chooses train-* or t10k-* files of idx, and the directory train or test (validation, val) of
// ofrecord and folder where both exist; elsewhere it has no meaning. The classes of a folder get
// the places of their names among `names`, if there are any, and must be among them. Throws
// InputError.
std::unique_ptr<RecordSource> open_source(std::string_view specification, Split split,
                                          const std::vector<std::string>& names = {});

// What a data set tells of its classes without reading every record.
struct DataClasses {
  int64_t count = 0;  // one above the largest label; 0: it does not tell
  std::vector<std::string> names = {};
};

// Likewise, without listing the images of a folder.
DataClasses classes_of(std::string_view specification, Split split);

// "ofrecord:DIR" → {"ofrecord", "DIR"}; throws InputError listing the formats if it is none.
std::pair<std::string, std::string> parse_data_specification(std::string_view specification);

// "Record 12 at byte 3456 of 'part-00000' is bad: REASON", or "'cat.jpg' is bad: REASON".
std::string describe_bad_record(const RecordPlace& place, std::string_view reason);

}  // namespace millrace::data
