#include "data/record_source.h"

#include <filesystem>

#include "base/text.h"
#include "data/formats/folder.h"
#include "data/formats/idx.h"
#include "data/formats/ofrecord.h"
#include "data/formats/raw.h"
#include "data/formats/recordio.h"
#include "data/record_writer.h"

namespace millrace::data {
namespace {

const std::vector<std::string>& formats() {
  static const std::vector<std::string> names = {"ofrecord", "recordio", "folder", "idx", "raw"};
  return names;
}

std::filesystem::path choose_split(const std::filesystem::path& directory, Split split) {
  if (!std::filesystem::is_directory(directory / "train")) return directory;
  for (const char* name : {"test", "validation", "val"}) {
    if (!std::filesystem::is_directory(directory / name)) continue;
    return directory / (split == Split::train ? "train" : name);
  }
  return directory;
}

// Of a path that is named without it; empty if it does not tell.
std::string format_of_path(const std::filesystem::path& path) {
  if (path.extension() == ".rec") return "recordio";
  if (path.extension() == ".safetensors") return "raw";
  if (!std::filesystem::is_directory(path)) return "";
  return std::filesystem::exists(path / "train-labels-idx1-ubyte.gz") ? "idx" : "folder";
}

}  // namespace

std::pair<std::string, std::string> parse_data_specification(std::string_view specification) {
  const size_t colon = specification.find(':');
  const std::string format(specification.substr(0, colon));
  for (const std::string& known : formats()) {
    if (known != format) continue;
    if (colon == std::string_view::npos || colon + 1 == specification.size()) {
      fail_input("Data set '{}' names no path; write {}:PATH.", specification, format);
    }
    return {format, std::string(specification.substr(colon + 1))};
  }
  const std::string path(specification.substr(colon == std::string_view::npos ? 0 : colon + 1));
  std::string close = nearest(format, formats());
  if (close.empty()) close = format_of_path(std::string(specification));
  fail_input(
      "'{}' is no data set{}; write ofrecord:DIR, recordio:FILE.rec, folder:DIR, idx:DIR "
      "or raw:FILE.",
      specification, close.empty() ? "" : fmt::format(" (did you mean {}:{}?)", close, path));
}

std::unique_ptr<RecordSource> open_source(std::string_view specification, Split split,
                                          const std::vector<std::string>& names) {
  const auto [format, path] = parse_data_specification(specification);
  if (format == "recordio" && recordio_files(path).size() > 1) {
    return open_recordio_files(recordio_files(path));
  }
  if (!std::filesystem::exists(path)) fail_input("Data set '{}' does not exist.", path);
  if (format == "ofrecord") return open_ofrecord(choose_split(path, split));
  if (format == "recordio") return open_recordio(path);
  if (format == "folder") return open_folder(choose_split(path, split), names);
  if (format == "idx") return open_idx(path, split);
  return open_raw(path);
}

DataClasses classes_of(std::string_view specification, Split split) {
  const auto [format, path] = parse_data_specification(specification);
  if (format != "folder" || !std::filesystem::exists(path)) {
    return {.count = open_source(specification, split)->classes()};
  }
  std::vector<std::string> names = folder_classes(choose_split(path, split));
  for (std::string& name : names) name = printable(name);
  return {.count = static_cast<int64_t>(names.size()), .names = std::move(names)};
}

std::unique_ptr<RecordWriter> create_writer(std::string_view specification,
                                            const WriterOptions& options) {
  const auto [format, path] = parse_data_specification(specification);
  if (format == "ofrecord") return create_ofrecord(path, options);
  if (format == "recordio") return create_recordio(path);
  if (format == "folder") return create_folder(path);
  if (format == "idx") return create_idx(path, options.split);
  return create_raw(path);
}

std::string describe_bad_record(const RecordPlace& place, std::string_view reason) {
  if (place.is_file) return fmt::format("'{}' is bad: {}.", printable(place.file), reason);
  return fmt::format("Record {} at byte {} of '{}' is bad: {}.", place.record, place.offset,
                     place.file, reason);
}

}  // namespace millrace::data
