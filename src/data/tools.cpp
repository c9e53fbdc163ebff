#include "data/tools.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/lost_pages.h"
#include "base/text.h"
#include "data/formats/files.h"
#include "data/formats/recordio.h"
#include "data/image/codec.h"

namespace millrace::data {
namespace {

constexpr size_t kListedRecords = 1000;
constexpr size_t kShownClasses = 20;

bool stores_pixels(std::string_view specification) {
  const std::string format = parse_data_specification(specification).first;
  return format == "idx" || format == "raw";
}

Json bad_record(const RecordPlace& place, std::string_view reason) {
  return {{"file", printable(place.file)},
          {"record", place.record},
          {"offset", place.offset},
          {"reason", printable(reason)}};
}

struct Range {
  int least = std::numeric_limits<int>::max();
  int most = 0;
  double sum = 0;
  uint64_t count = 0;

  void add(int value) {
    least = std::min(least, value);
    most = std::max(most, value);
    sum += value;
    ++count;
  }
  Json json() const {
    if (count == 0) return nullptr;
    return {{"min", least}, {"mean", sum / static_cast<double>(count)}, {"max", most}};
  }
};

template <typename Key>
Json counts_json(const std::map<Key, uint64_t>& counts) {
  Json json = Json::object();
  for (const auto& [key, count] : counts) json[fmt::format("{}", key)] = count;
  return json;
}

}  // namespace

Json synth_data(std::string_view to, const SynthOptions& options, const WriterOptions& writer) {
  const auto target = create_writer(to, writer);
  synthesise(options, *target, stores_pixels(to));
  return {{"data", printable(to)},
          {"records", options.count},
          {"classes", options.classes},
          {"height", options.height},
          {"width", options.width}};
}

Json synth_faces(std::string_view to, const FaceSynthOptions& options, const WriterOptions& writer,
                 const std::filesystem::path& pairs) {
  check(options);
  const auto [format, path] = parse_data_specification(to);
  const std::filesystem::path pairs_path =
      pairs.empty() ? std::filesystem::path(path).parent_path() / "pairs.bin" : pairs;
  if (options.pairs > 0 && std::filesystem::exists(pairs_path)) {
    fail_input("'{}' already exists; name another file by ‹verification›, or give ‹pairs› 0.",
               pairs_path.string());
  }
  const auto identities = static_cast<uint64_t>(options.identities);
  const uint64_t records = identities * static_cast<uint64_t>(options.images);
  const auto target = format == "recordio" ? create_face_recordio(path, records, identities)
                                           : create_writer(to, writer);
  synthesise_faces(options, *target, stores_pixels(to));
  Json facts = {{"data", printable(to)},
                {"records", records},
                {"classes", options.identities},
                {"height", options.size},
                {"width", options.size}};
  if (options.pairs > 0) {
    write_face_pairs(options, pairs_path);
    facts["verification"] = printable(pairs_path.string());
    facts["pairs"] = options.pairs;
  }
  return facts;
}

Json convert_data(std::string_view from, Split split, std::string_view to,
                  const WriterOptions& writer, BadRecords policy) {
  const auto source = open_source(from, split);
  const auto target = create_writer(to, writer);
  Json bad = Json::array();
  uint64_t skipped = 0;
  for (uint64_t index = 0; index < source->count(); ++index) {
    try {
      target->add(source->read(index));
    } catch (const BadData& error) {
      const RecordPlace place = source->place(index);
      if (policy == BadRecords::fail) {
        fail_input("{} Use ‹on_bad_record› skip to leave such records out.",
                   describe_bad_record(place, error.what()));
      }
      ++skipped;
      if (bad.size() < kListedRecords) bad.push_back(bad_record(place, error.what()));
    }
  }
  expect_no_lost_pages();
  target->finish();
  return {{"from", printable(from)},
          {"to", printable(to)},
          {"records", source->count() - skipped},
          {"skipped", skipped},
          {"bad", bad}};
}

Json inspect_data(std::string_view data, Split split) {
  const auto source = open_source(data, split);
  std::map<int64_t, uint64_t> histogram;
  std::map<std::string, uint64_t> formats;
  std::map<int, uint64_t> channels;
  Range width;
  Range height;
  uint64_t bytes = 0;
  uint64_t bad = 0;
  for (uint64_t index = 0; index < source->count(); ++index) {
    try {
      const Sample sample = source->read(index);
      const ImageReader reader(sample);
      ++histogram[sample.label];
      ++formats[std::string(reader.format())];
      ++channels[reader.channels()];
      width.add(reader.width());
      height.add(reader.height());
      bytes += sample.bytes.size();
    } catch (const BadData&) {
      ++bad;
    }
  }
  return {{"data", printable(data)},
          {"records", source->count()},
          {"bad", bad},
          {"bytes", bytes},
          {"formats", counts_json(formats)},
          {"classes", histogram.size()},
          {"histogram", counts_json(histogram)},
          {"class_names", source->class_names()},
          {"passed_over", source->passed_over()},
          {"channels", counts_json(channels)},
          {"width", width.json()},
          {"height", height.json()}};
}

Json verify_data(std::string_view data, Split split, int64_t classes) {
  const auto source = open_source(data, split);
  Json bad = Json::array();
  uint64_t bad_count = 0;
  for (uint64_t index = 0; index < source->count(); ++index) {
    try {
      const Sample sample = source->read(index);
      if (sample.label < 0 || (classes > 0 && sample.label >= classes)) {
        fail_data("its label {} is outside the {} classes", sample.label, classes);
      }
      decode_image(sample);
    } catch (const BadData& error) {
      ++bad_count;
      if (bad.size() < kListedRecords)
        bad.push_back(bad_record(source->place(index), error.what()));
    }
  }
  return {{"data", printable(data)},
          {"records", source->count()},
          {"good", source->count() - bad_count},
          {"bad_count", bad_count},
          {"bad", bad}};
}

std::string describe_inspection(const Json& facts) {
  std::string text =
      fmt::format("{}: {} records in {} classes, {} of images\n", facts["data"].get<std::string>(),
                  facts["records"].get<uint64_t>(), facts["classes"].get<uint64_t>(),
                  format_bytes(facts["bytes"].get<uint64_t>()));
  if (facts["bad"].get<uint64_t>() > 0) {
    text += fmt::format("  {} records are bad; `millrace data verify` lists them\n",
                        facts["bad"].get<uint64_t>());
  }
  const auto passed_over = facts["passed_over"].get<std::vector<std::string>>();
  if (!passed_over.empty()) text += fmt::format("  {}\n", describe_passed_over(passed_over));
  for (const char* side : {"width", "height"}) {
    if (facts[side].is_null()) continue;
    text += fmt::format("  {:6} {} to {}, mean {:.1f}\n", side, facts[side]["min"].get<int>(),
                        facts[side]["max"].get<int>(), facts[side]["mean"].get<double>());
  }
  for (const auto& [format, count] : facts["formats"].items()) {
    text += fmt::format("  stored as {}: {}\n", format, count.get<uint64_t>());
  }
  const Json& names = facts["class_names"];
  size_t shown = 0;
  for (const auto& [label, count] : facts["histogram"].items()) {
    if (shown++ == kShownClasses) {
      text += fmt::format("  … and {} more classes\n", facts["histogram"].size() - kShownClasses);
      break;
    }
    const auto number = static_cast<size_t>(std::max(0ll, std::stoll(label)));
    const std::string name =
        number < names.size() ? " (" + names[number].get<std::string>() + ")" : "";
    text += fmt::format("  class {}{}: {}\n", label, name, count.get<uint64_t>());
  }
  return text;
}

std::string describe_verification(const Json& facts) {
  std::string text =
      fmt::format("{}: {} of {} records are good\n", facts["data"].get<std::string>(),
                  facts["good"].get<uint64_t>(), facts["records"].get<uint64_t>());
  for (const Json& bad : facts["bad"]) {
    const RecordPlace place = {bad["file"].get<std::string>(), bad["record"].get<uint64_t>(),
                               bad["offset"].get<uint64_t>()};
    text += "  " + describe_bad_record(place, bad["reason"].get<std::string>()) + "\n";
  }
  const uint64_t more = facts["bad_count"].get<uint64_t>() - facts["bad"].size();
  if (more > 0) text += fmt::format("  … and {} more\n", more);
  return text;
}

}  // namespace millrace::data
