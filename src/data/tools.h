// What `millrace data` does: make, convert, look at and check data sets. All return facts as
// JSON; `describe_…` turns them into text for people. Throws InputError.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "data/loader.h"
#include "data/record_source.h"
#include "data/record_writer.h"
#include "data/synth.h"
#include "data/synth_faces.h"

namespace millrace::data {

// {"data", "records", "classes", "height", "width"}
Json synth_data(std::string_view to, const SynthOptions& options, const WriterOptions& writer);

// The same of synthetic people, as InsightFace lays them out if the format is recordio; with
// "verification" and "pairs" if a set of pairs is written, to `pairs` or to pairs.bin beside the
// data.
Json synth_faces(std::string_view to, const FaceSynthOptions& options, const WriterOptions& writer,
                 const std::filesystem::path& pairs = {});

// {"from", "to", "records", "skipped", "bad": [...]}; bad records end the conversion or are left
// out and listed.
Json convert_data(std::string_view from, Split split, std::string_view to,
                  const WriterOptions& writer, BadRecords policy);

// {"data", "records", "bad", "bytes", "formats": {"jpeg": n}, "classes", "histogram":
// {"label": n}, "class_names": [...], "channels": {"3": n}, "width": {"min", "mean", "max"},
// "height": …}; reads headers, does not decode.
Json inspect_data(std::string_view data, Split split);

// Decodes every record: {"data", "records", "good", "bad": [{"file", "record", "offset",
// "reason"}], "bad_count"}. Labels must lie in [0, classes) if classes > 0. The list holds the
// first 1000 bad records.
Json verify_data(std::string_view data, Split split, int64_t classes);

std::string describe_inspection(const Json& facts);
std::string describe_verification(const Json& facts);

}  // namespace millrace::data
