#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/card_flags.h"
#include "cli/command.h"
#include "cli/flag_names.h"
#include "cli/plan_pipedream.h"
#include "cli/standard_files.h"
#include "data/safetensors.h"
#include "train/centre_shards.h"
#include "train/checkpoint.h"
#include "train/model_card.h"
#include "train/settled_centres.h"
#include "train/weights.h"

namespace millrace::cli {
namespace {

constexpr const char* kCkptExamples = R"(Examples:
    millrace ckpt inspect runs/r50                  every checkpoint of a run
    millrace ckpt inspect runs/r50/step-00012000    one of them
    millrace ckpt verify runs/r50                   are they as they were written?
    millrace ckpt export runs/r50 resnet50.safetensors
    millrace ckpt export runs/faces centres.safetensors --centres
    millrace ckpt split runs/faces --shards 3       class centres in three files
    millrace ckpt merge runs/faces                  and in one again

A run resumes on any number of devices, whatever the number of shards.)";

struct CkptFlags {
  std::string source, target, output;
  std::string shards;
  bool json = false;
  bool centres = false, best = false;
};

bool is_checkpoint(const std::filesystem::path& path) {
  return std::filesystem::exists(path / train::kManifestFile);
}

// A run's checkpoints, or the one that is named itself.
std::vector<std::filesystem::path> find_checkpoints(const std::filesystem::path& path) {
  if (is_checkpoint(path)) return {path};
  std::vector<std::filesystem::path> found;
  for (const train::CheckpointPlace& place : train::list_checkpoints(path))
    found.push_back(place.path);
  if (found.empty()) train::fail_without_checkpoints(path);
  return found;
}

Json describe_tensors(const std::filesystem::path& path) {
  const data::SafetensorsFile file(path);
  int64_t elements = 0;
  for (const data::SafetensorsEntry& entry : file.entries()) {
    elements +=
        static_cast<int64_t>(entry.data.size() / data::safetensors_element_size(entry.dtype));
  }
  return {{"tensors", file.entries().size()}, {"elements", elements}};
}

Json inspect_checkpoint(const std::filesystem::path& path) {
  Json json;
  json["checkpoint"] = printable(path.string());
  try {
    json["manifest"] = train::to_json(train::verify_checkpoint(path));
    const train::ShardReader shards(path, train::read_manifest(path));
    if (!shards.empty()) {
      json["centres"] = {{"classes", shards.classes()},
                         {"shards", shards.shards()},
                         {"dtype", shards.tensors().front().dtype},
                         {"tensors", shards.tensors().size()}};
    }
    json["weights"] = describe_tensors(path / train::kWeightsFile);
    json["optimizer"] = describe_tensors(path / train::kOptimizerFile);
    json["intact"] = true;
  } catch (const InputError& error) {
    json["intact"] = false;
    json["damage"] = printable(with_flags(error.marked()));
  }
  return json;
}

void print_inspection(const Json& json) {
  fmt::print("{}\n", json["checkpoint"].get<std::string>());
  if (!json["intact"].get<bool>()) {
    fmt::print("  damaged: {}\n", json["damage"].get<std::string>());
    return;
  }
  const Json& manifest = json["manifest"];
  fmt::print("  {}, step {}, epoch {}, position {}, seed {}, written by Millrace {}\n",
             manifest["model"].get<std::string>(), manifest["step"].get<int64_t>(),
             manifest["epoch"].get<int64_t>(), manifest["position"].get<int64_t>(),
             manifest["seed"].get<uint64_t>(), manifest["version"].get<std::string>());
  if (const auto measured = train::parse_measured(manifest.value("measured", Json()))) {
    fmt::print("  {}\n", train::describe(*measured));
  }
  for (const char* part : {"weights", "optimizer"}) {
    const std::string file = std::string(part) + ".safetensors";
    fmt::print("  {:<10}{} tensors, {} numbers, {}\n", part, json[part]["tensors"].get<size_t>(),
               json[part]["elements"].get<int64_t>(),
               format_bytes(manifest["files"][file]["bytes"].get<uint64_t>()));
  }
  if (json.contains("centres")) {
    const Json& centres = json["centres"];
    fmt::print("  centres   {} classes in {} shards, {}\n", centres["classes"].get<int64_t>(),
               centres["shards"].get<size_t>(), centres["dtype"].get<std::string>());
  }
}

int run_inspect(const CkptFlags& flags) {
  Json all = Json::array();
  for (const std::filesystem::path& path : find_checkpoints(flags.source)) {
    all.push_back(inspect_checkpoint(path));
    if (!flags.json) print_inspection(all.back());
  }
  if (flags.json) fmt::print("{}\n", all.dump(2));
  return kExitSuccess;
}

// Status 1 if one of them is damaged.
int run_ckpt_verify(const CkptFlags& flags) {
  Json all = Json::array();
  int status = kExitSuccess;
  for (const std::filesystem::path& path : find_checkpoints(flags.source)) {
    Json one = {{"checkpoint", printable(path.string())}};
    std::string text = "intact";
    try {
      uint64_t bytes = 0;
      const train::Manifest manifest = train::verify_checkpoint(path);
      for (const train::CheckpointFile& file : manifest.files) bytes += file.bytes;
      one.update({{"intact", true}, {"step", manifest.step}, {"bytes", bytes}});
      text = fmt::format("intact, step {}, {} in {} files", manifest.step, format_bytes(bytes),
                         manifest.files.size());
    } catch (const InputError& error) {
      one.update({{"intact", false}, {"damage", printable(with_flags(error.marked()))}});
      text = fmt::format("damaged: {}", with_flags(error.marked()));
      status = kExitJobFailed;
    }
    if (!flags.json) fmt::print("{}: {}\n", path.string(), text);
    all.push_back(std::move(one));
  }
  if (flags.json) fmt::print("{}\n", all.dump(2));
  return status;
}

std::filesystem::path newest_of(const CkptFlags& flags) {
  const auto warn = [](std::string_view sentence) {
    print_error("millrace: warning: {}\n", with_flags(sentence));
  };
  if (!flags.best) return train::newest_checkpoint(flags.source, warn);
  const auto best = train::find_best(flags.source, warn);
  if (!best) fail_input("--best: no intact checkpoint in '{}' was measured.", flags.source);
  return *best;
}

// Weights, then the centres of all shards as one tensor.
int run_export(const CkptFlags& flags) {
  require_safetensors(flags.target, "The output");
  const std::filesystem::path source = newest_of(flags);
  const train::Manifest manifest = train::read_manifest(source);
  const data::SafetensorsFile weights(train::weights_in(source));
  const train::ShardReader shards(source, manifest);
  if (flags.centres && shards.empty()) {
    fail_input("'{}' has no class centres; only a model trained with --head has.", source.string());
  }
  std::vector<data::SafetensorsTensor> tensors;
  if (!flags.centres) {
    for (const data::SafetensorsEntry& entry : weights.entries()) {
      tensors.push_back({.name = entry.name, .dtype = entry.dtype, .shape = entry.shape});
    }
  }
  const size_t plain = tensors.size();
  if (!shards.empty()) tensors.push_back(shards.tensors().front());
  data::SafetensorsWriter writer(flags.target, tensors,
                                 train::to_metadata(train::card_of(manifest)));
  for (size_t i = 0; i < plain; ++i) {
    writer.append(weights.entries()[i].data.data(), weights.entries()[i].data.size());
  }
  if (!shards.empty()) {
    const train::SettledCentres centres(source, manifest, shards);
    const data::SafetensorsTensor& tensor = shards.tensors().front();
    const auto row =
        tensor.shape.at(1) * static_cast<int64_t>(data::safetensors_element_size(tensor.dtype));
    std::vector<std::byte> bytes;
    train::each_few_rows(0, shards.classes(), row, [&](int64_t first, int64_t count) {
      bytes.resize(static_cast<size_t>(count * row));
      centres.read(first, bytes);
      writer.append(bytes.data(), bytes.size());
    });
  }
  writer.commit();
  fmt::print("{} tensor{} of step {} in {}\n", tensors.size(), tensors.size() == 1 ? "" : "s",
             manifest.step, flags.target);
  return kExitSuccess;
}

int run_cut(const CkptFlags& flags) {
  const int64_t shards = parse_count(flags.shards, "--shards");
  const std::filesystem::path source = newest_of(flags);
  std::filesystem::path target = source;
  if (!flags.output.empty()) {
    target = std::filesystem::path(flags.output) /
             train::checkpoint_name(train::read_manifest(source).step);
  }
  try {
    if (!flags.output.empty()) std::filesystem::create_directories(flags.output);
    train::cut_checkpoint(source, target, shards);
  } catch (const std::filesystem::filesystem_error& error) {
    fail_input("Cannot write '{}': {}.", target.string(), error.code().message());
  }
  fmt::print("{}: class centres in {} shard{}\n", target.string(), shards, shards == 1 ? "" : "s");
  return kExitSuccess;
}

void require_argument(const std::string& value, std::string_view what) {
  if (value.empty()) fail_input("{} is missing; see --help.", what);
}

}  // namespace

void add_ckpt_command(CLI::App& program, Action& chosen) {
  auto flags = std::make_shared<CkptFlags>();
  CLI::App* command = program.add_subcommand("ckpt", "Look into checkpoints and export weights");
  command->footer(kCkptExamples);
  command->callback([&chosen, command] {
    if (command->get_subcommands().empty()) {
      chosen = []() -> int {
        fail_input("Say what to do: millrace ckpt inspect, verify, export, merge or split.");
      };
    }
  });

  CLI::App* inspect = command->add_subcommand("inspect", "Show and check the checkpoints of a run");
  inspect->add_option("directory", flags->source, "A run's directory or one checkpoint");
  inspect->add_flag("--json", flags->json, "Print JSON");
  inspect->callback([flags, &chosen] {
    chosen = [flags] {
      require_argument(flags->source, "The checkpoint's directory");
      return run_inspect(*flags);
    };
  });

  CLI::App* verify = command->add_subcommand(
      "verify", "Compare every file with its checksum; exit status 1 if a checkpoint is damaged");
  verify->add_option("directory", flags->source, "A run's directory or one checkpoint");
  verify->add_flag("--json", flags->json, "Print JSON");
  verify->callback([flags, &chosen] {
    chosen = [flags] {
      require_argument(flags->source, "The checkpoint's directory");
      return run_ckpt_verify(*flags);
    };
  });

  CLI::App* exporting = command->add_subcommand(
      "export", "Write the weights as one plain safetensors file with torchvision's names");
  exporting->add_option("directory", flags->source,
                        "One checkpoint, or a run's directory: its newest intact one");
  exporting->add_option("file", flags->target, "The safetensors file to write");
  exporting->add_flag("--best", flags->best, "The one that was measured best, not the newest");
  exporting->add_flag("--centres", flags->centres, "Only the class centres of a margin head");
  exporting->callback([flags, &chosen] {
    chosen = [flags] {
      require_argument(flags->source, "The checkpoint's directory");
      require_argument(flags->target, "The output file");
      return run_export(*flags);
    };
  });

  const auto add_cut = [&](const char* name, const char* help, const char* shards) {
    CLI::App* cut = command->add_subcommand(name, help);
    cut->add_option("directory", flags->source,
                    "One checkpoint, or a run's directory: its newest intact one");
    cut->add_option("--shards", flags->shards,
                    fmt::format("Files to have afterwards{}", *shards ? " [1]" : ""));
    cut->add_option("--output", flags->output,
                    "Directory for the new checkpoint [in the place of the old one]");
    cut->callback([flags, &chosen, shards] {
      chosen = [flags, shards] {
        require_argument(flags->source, "The checkpoint's directory");
        if (flags->shards.empty()) flags->shards = shards;
        require_argument(flags->shards, "--shards, the number of files,");
        return run_cut(*flags);
      };
    });
  };
  add_cut("merge", "Put the class centres of a margin head into fewer files", "1");
  add_cut("split", "Put the class centres of a margin head into more files", "");
}

}  // namespace millrace::cli
