#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/command.h"
#include "data/safetensors.h"
#include "train/checkpoint.h"

namespace millrace {
namespace {

constexpr const char* kExamples = R"(Examples:
    millrace ckpt inspect runs/r50                  every checkpoint of a run
    millrace ckpt inspect runs/r50/step-00012000    one of them
    millrace ckpt export runs/r50 resnet50.safetensors)";

struct CkptFlags {
  std::string source, target;
  bool json = false;
};

bool is_checkpoint(const std::filesystem::path& path) {
  return std::filesystem::exists(path / kManifestFile);
}

// A run's checkpoints, or the one that is named itself.
std::vector<std::filesystem::path> find_checkpoints(const std::filesystem::path& path) {
  if (is_checkpoint(path)) return {path};
  std::vector<std::filesystem::path> found;
  for (const CheckpointPlace& place : list_checkpoints(path)) found.push_back(place.path);
  if (found.empty()) fail_input("There is no checkpoint in '{}'.", path.string());
  return found;
}

Json describe_tensors(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  int64_t elements = 0;
  for (const SafetensorsEntry& entry : file.entries()) {
    elements += static_cast<int64_t>(entry.data.size() / safetensors_element_size(entry.dtype));
  }
  return {{"tensors", file.entries().size()}, {"elements", elements}};
}

Json inspect_checkpoint(const std::filesystem::path& path) {
  Json json;
  json["checkpoint"] = path.string();
  try {
    json["manifest"] = to_json(verify_checkpoint(path));
    json["weights"] = describe_tensors(path / kWeightsFile);
    json["optimizer"] = describe_tensors(path / kOptimizerFile);
    json["intact"] = true;
  } catch (const InputError& error) {
    json["intact"] = false;
    json["damage"] = error.what();
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
  if (manifest.contains("accuracy")) {
    fmt::print("  top-1 {:.2f} %\n", manifest["accuracy"].get<double>() * 100);
  }
  for (const char* part : {"weights", "optimizer"}) {
    const std::string file = std::string(part) + ".safetensors";
    fmt::print("  {:<10}{} tensors, {} numbers, {}\n", part, json[part]["tensors"].get<size_t>(),
               json[part]["elements"].get<int64_t>(),
               format_bytes(manifest["files"][file]["bytes"].get<uint64_t>()));
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

int run_export(const CkptFlags& flags) {
  require_writable(flags.target, "The output");
  std::filesystem::path source = flags.source;
  if (!is_checkpoint(source)) {
    const auto found = find_newest_valid(source, [](std::string_view sentence) {
      fmt::print(stderr, "millrace: warning: {}\n", sentence);
    });
    if (!found) fail_input("There is no checkpoint in '{}'.", source.string());
    source = *found;
  }
  const Manifest manifest = verify_checkpoint(source);
  const SafetensorsFile weights(source / kWeightsFile);
  std::vector<SafetensorsTensor> tensors;
  for (const SafetensorsEntry& entry : weights.entries()) {
    tensors.push_back({entry.name, entry.dtype, entry.shape, entry.data.data(), entry.data.size()});
  }
  write_safetensors(flags.target, tensors, {{"format", "pt"}, {"model", manifest.model}});
  fmt::print("{} tensors of step {} in {}\n", tensors.size(), manifest.step, flags.target);
  return kExitSuccess;
}

void require_argument(const std::string& value, std::string_view what) {
  if (value.empty()) fail_input("{} is missing; see --help.", what);
}

}  // namespace

void add_ckpt_command(CLI::App& program, Action& chosen) {
  auto flags = std::make_shared<CkptFlags>();
  CLI::App* command = program.add_subcommand("ckpt", "Look into checkpoints and export weights");
  command->footer(kExamples);
  command->callback([&chosen, command] {
    if (command->get_subcommands().empty()) {
      chosen = []() -> int { fail_input("Say what to do: millrace ckpt inspect or export."); };
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

  CLI::App* exporting = command->add_subcommand(
      "export", "Write the weights as one plain safetensors file with torchvision's names");
  exporting->add_option("directory", flags->source,
                        "One checkpoint, or a run's directory: its newest intact one");
  exporting->add_option("file", flags->target, "The safetensors file to write");
  exporting->callback([flags, &chosen] {
    chosen = [flags] {
      require_argument(flags->source, "The checkpoint's directory");
      require_argument(flags->target, "The output file");
      return run_export(*flags);
    };
  });
}

}  // namespace millrace
