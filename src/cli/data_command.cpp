#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/interruption.h"
#include "cli/job_flags.h"
#include "data/tools.h"

namespace millrace::cli {
namespace {

constexpr const char* kDataExamples =
    R"(A data set is written FORMAT:PATH: ofrecord:DIR, recordio:FILE.rec, folder:DIR, idx:DIR,
raw:FILE.

Examples:
    millrace data synth ofrecord:cats --count 5000 --classes 100
    millrace data synth recordio:faces.rec --faces --identities 100 --images 20
    millrace data convert folder:photos recordio:photos.rec
    millrace data inspect idx:/usr/share/datasets/fashion-mnist
    millrace data verify ofrecord:cats --classes 100)";

struct DataFlags {
  std::string from, to;
  std::string split = "train";
  std::string on_bad_record = "fail";
  std::string part_size = "256MiB";
  int64_t classes = 0;
  data::SynthOptions synth;
  bool faces = false;
  data::FaceSynthOptions people;
  std::string verification;
  bool json = false;

  data::Split chosen_split() const {
    return choose("--split", split, {"train", "test"}) == 0 ? data::Split::train
                                                            : data::Split::test;
  }
  data::WriterOptions writer() const {
    data::WriterOptions options;
    options.split = chosen_split();
    options.part_bytes = parse_bytes(part_size, "--part-size");
    return options;
  }
};

void require_data(const std::string& value) {
  if (value.empty()) fail_input("The data set is missing; write FORMAT:PATH, see --help.");
}

int run_synth_faces(const DataFlags& flags) {
  data::FaceSynthOptions options = flags.people;
  options.quality = flags.synth.quality;
  options.seed = flags.synth.seed;
  const Json facts = data::synth_faces(flags.to, options, flags.writer(), flags.verification);
  if (flags.json) {
    fmt::print("{}\n", facts.dump(2));
    return kExitSuccess;
  }
  fmt::print("{} images of {} people in {}\n", facts["records"].get<uint64_t>(),
             facts["classes"].get<int64_t>(), flags.to);
  if (facts.contains("pairs")) {
    fmt::print("{} pairs for verification in {}\n", facts["pairs"].get<int64_t>(),
               facts["verification"].get<std::string>());
  }
  return kExitSuccess;
}

int run_synth(const DataFlags& flags) {
  require_data(flags.to);
  if (flags.faces) return run_synth_faces(flags);
  const Json facts = data::synth_data(flags.to, flags.synth, flags.writer());
  if (flags.json) {
    fmt::print("{}\n", facts.dump(2));
  } else {
    fmt::print("{} images of {} classes in {}\n", facts["records"].get<uint64_t>(),
               facts["classes"].get<int64_t>(), flags.to);
  }
  return kExitSuccess;
}

int run_convert(const DataFlags& flags) {
  require_data(flags.from);
  require_data(flags.to);
  const data::BadRecords policy =
      choose("--on-bad-record", flags.on_bad_record, {"fail", "skip"}) == 0
          ? data::BadRecords::fail
          : data::BadRecords::skip;
  const Json facts =
      data::convert_data(flags.from, flags.chosen_split(), flags.to, flags.writer(), policy);
  if (flags.json) {
    fmt::print("{}\n", facts.dump(2));
  } else {
    fmt::print("{} records in {}, {} skipped\n", facts["records"].get<uint64_t>(), flags.to,
               facts["skipped"].get<uint64_t>());
  }
  return kExitSuccess;
}

int run_inspect(const DataFlags& flags) {
  require_data(flags.from);
  const Json facts = data::inspect_data(flags.from, flags.chosen_split());
  fmt::print("{}\n", flags.json ? facts.dump(2) : data::describe_inspection(facts));
  return kExitSuccess;
}

int run_verify(const DataFlags& flags) {
  require_data(flags.from);
  const Json facts = data::verify_data(flags.from, flags.chosen_split(), flags.classes);
  fmt::print("{}\n", flags.json ? facts.dump(2) : data::describe_verification(facts));
  return facts["bad_count"].get<uint64_t>() == 0 ? kExitSuccess : kExitJobFailed;
}

CLI::App* add_tool(CLI::App& data, const char* name, const char* help, Action& chosen,
                   const std::shared_ptr<DataFlags>& flags, int (*run)(const DataFlags&),
                   Interruption& interruption) {
  CLI::App* tool = data.add_subcommand(name, help);
  tool->add_option("--split", flags->split, "Which part of the set: train or test")
      ->capture_default_str();
  tool->add_flag("--json", flags->json, "Print JSON");
  tool->callback([flags, run, &chosen, &interruption] {
    chosen = [flags, run, &interruption] {
      if (!flags->to.empty()) {
        interruption.end_at_once(
            fmt::format("Interrupted; '{}' is not complete: remove it and give the same command "
                        "again.",
                        flags->to));
      }
      return run(*flags);
    };
  });
  return tool;
}

void add_part_size(CLI::App& tool, DataFlags& flags) {
  tool.add_option("--part-size", flags.part_size, "Size of the files of an OFRecord set")
      ->capture_default_str();
}

void add_face_flags(CLI::App& synth, DataFlags& flags) {
  synth
      .add_flag("--faces", flags.faces,
                "Make synthetic people instead, laid out as InsightFace's sets in RecordIO, and "
                "pairs for verification; of the flags above, --seed and --quality apply")
      ->group("Faces");
  const auto add = [&](const char* name, auto& value, const char* help) {
    synth.add_option(name, value, help)->group("Faces")->capture_default_str();
  };
  add("--identities", flags.people.identities, "How many people");
  add("--images", flags.people.images, "Of each of them");
  add("--size", flags.people.size, "Height and width in pixels");
  add("--pairs", flags.people.pairs, "Pairs for verification, half of one person; 0 writes none");
  add("--verification", flags.verification, "File of the pairs [pairs.bin beside the data]");
  synth
      .add_flag("--new-people", flags.people.new_people,
                "Pairs show people who are not in the data, not new images of those who are")
      ->group("Faces");
}

}  // namespace

void add_data_command(CLI::App& program, Action& chosen, Interruption& interruption) {
  auto flags = std::make_shared<DataFlags>();
  CLI::App* data = program.add_subcommand("data", "Make, convert, inspect and verify data sets");
  data->footer(kDataExamples);
  data->callback([&chosen, data] {
    if (data->get_subcommands().empty()) {
      chosen = []() -> int {
        fail_input("Say what to do: millrace data synth, convert, inspect or verify.");
      };
    }
  });

  CLI::App* synth = add_tool(*data, "synth", "Make a set of synthetic photographs", chosen, flags,
                             run_synth, interruption);
  synth->add_option("to", flags->to, "The data set to make, FORMAT:PATH");
  const auto add = [&](const char* name, auto& value, const char* help) {
    synth->add_option(name, value, help)->capture_default_str();
  };
  add("--count", flags->synth.count, "How many images");
  add("--classes", flags->synth.classes, "Of how many classes");
  add("--height", flags->synth.height, "In pixels");
  add("--width", flags->synth.width, "In pixels");
  add("--channels", flags->synth.channels, "3, or 1 for grey");
  add("--quality", flags->synth.quality, "Of the JPEGs, 1 to 100");
  add("--seed", flags->synth.seed, "Sets of different seeds can train and test");
  add_part_size(*synth, *flags);
  add_face_flags(*synth, *flags);

  CLI::App* convert = add_tool(*data, "convert", "Write a set in another format", chosen, flags,
                               run_convert, interruption);
  convert->add_option("from", flags->from, "The data set to read, FORMAT:PATH");
  convert->add_option("to", flags->to, "The data set to make, FORMAT:PATH");
  convert->add_option("--on-bad-record", flags->on_bad_record, "fail, or skip and list")
      ->capture_default_str();
  add_part_size(*convert, *flags);

  CLI::App* inspect = add_tool(*data, "inspect", "Count records, classes and image sizes", chosen,
                               flags, run_inspect, interruption);
  inspect->add_option("data", flags->from, "The data set, FORMAT:PATH");

  CLI::App* verify = add_tool(*data, "verify", "Decode every record; exit status 1 if any is bad",
                              chosen, flags, run_verify, interruption);
  verify->add_option("data", flags->from, "The data set, FORMAT:PATH");
  verify->add_option("--classes", flags->classes, "Labels must be below; 0 does not check")
      ->capture_default_str();
}

}  // namespace millrace::cli
