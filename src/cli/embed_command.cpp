#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/image_list.h"
#include "cli/look_flags.h"
#include "cli/progress.h"
#include "data/npy.h"
#include "train/prediction.h"

namespace millrace::cli {
namespace {

constexpr const char* kEmbedExamples = R"(Examples:
    millrace embed runs/faces faces/*.jpg -o faces.npy
    millrace embed backbone.pth --model iresnet50 faces -o faces.npy --names faces.txt

Each row is a vector of unit length for one image, in order: that of the image plus that of its mirror
image. Images are taken as aligned faces.)";

constexpr const char* kVerifyExamples = R"(Examples:
    millrace verify runs/faces a.jpg b.jpg
    millrace verify runs/faces a.jpg b.jpg --threshold 1.2

The threshold is a squared distance, as `millrace eval --verification` finds it.)";

struct EmbedFlags {
  LookFlags look;
  std::vector<std::string> files;
  std::string output, names;
};

struct VerifyFlags {
  LookFlags look;
  std::vector<std::string> files;
  std::optional<double> threshold;
  bool json = false;
};

int run_embed(const EmbedFlags& flags) {
  require_weights(flags.look);
  const std::vector<std::filesystem::path> files = list_images(flags.files);
  if (flags.output.empty()) fail_input("--output is missing; name the .npy file to write.");
  const std::filesystem::path ending = std::filesystem::path(flags.output).extension();
  if (!ending.empty() && ending != ".npy") {
    fail_input("--output is '{}', but vectors are written as .npy, which numpy.load reads.",
               flags.output);
  }
  require_writable(flags.output, "--output");
  if (!flags.names.empty()) require_writable(flags.names, "--names");
  ProgressPrinter messages(true);
  std::vector<float> rows;
  std::string names;
  int64_t columns = 0, count = 0;
  const train::UnreadFiles unread =
      train::embed_files(look_job(flags.look, files.size()), files, messages,
                         [&](size_t file, std::span<const float> embedding) {
                           rows.insert(rows.end(), embedding.begin(), embedding.end());
                           columns = static_cast<int64_t>(embedding.size());
                           names += files[file].string() + "\n";
                           ++count;
                         });
  tell_unread(unread);
  data::write_npy(flags.output, rows, columns);
  if (!flags.names.empty()) write_text(flags.names, names);
  fmt::print("{} vectors of {} numbers in {}\n", count, columns, flags.output);
  return kExitSuccess;
}

int run_verify(const VerifyFlags& flags) {
  constexpr double kFurthest = 4;  // squared, of two vectors of length 1
  if (flags.threshold && !(*flags.threshold > 0 && *flags.threshold <= kFurthest)) {
    fail_input("--threshold is {:g}; squared distances lie between 0 and {:g}.", *flags.threshold,
               kFurthest);
  }
  require_weights(flags.look);
  const std::vector<std::filesystem::path> files = list_images(flags.files);
  if (files.size() != 2) fail_input("Name two images; there are {}.", files.size());
  ProgressPrinter messages(true);
  std::vector<std::vector<float>> vectors;
  train::embed_files(look_job(flags.look, files.size()), files, messages,
                     [&](size_t, std::span<const float> embedding) {
                       vectors.emplace_back(embedding.begin(), embedding.end());
                     });
  if (vectors.size() != 2) fail_input("One of the two images could not be read.");
  double cosine = 0, distance = 0;
  for (size_t i = 0; i < vectors[0].size(); ++i) {
    const double first = vectors[0][i], second = vectors[1][i];
    cosine += first * second;
    distance += (first - second) * (first - second);
  }
  const Json names = {printable(files[0].string()), printable(files[1].string())};
  Json json = {{"files", names}, {"cosine", cosine}, {"squared_distance", distance}};
  std::string text = fmt::format("squared distance {:.4f}, cosine {:.4f}", distance, cosine);
  if (flags.threshold) {
    const bool same = distance < *flags.threshold;
    json["same"] = same;
    text += same ? ": the same person" : ": different people";
  }
  fmt::print("{}\n", flags.json ? json.dump(2) : text);
  return kExitSuccess;
}

}  // namespace

void add_embed_command(CLI::App& program, Action& chosen) {
  auto flags = std::make_shared<EmbedFlags>();
  CLI::App* command = program.add_subcommand("embed", "Write the embeddings of faces");
  add_look_flags(*command, flags->look);
  command->add_option("files", flags->files, "Images, directories of them, or - for a list")
      ->group("Images");
  command->add_option("-o,--output", flags->output, "The .npy file to write; needed")
      ->group("Output");
  command->add_option("--names", flags->names, "Write the files of the rows there, one a line")
      ->group("Output");
  command->footer(kEmbedExamples);
  command->callback([flags, &chosen] { chosen = [flags] { return run_embed(*flags); }; });
}

void add_verify_command(CLI::App& program, Action& chosen) {
  auto flags = std::make_shared<VerifyFlags>();
  CLI::App* command = program.add_subcommand("verify", "Compare two faces");
  add_look_flags(*command, flags->look);
  command->add_option("files", flags->files, "Two images")->group("Images");
  command
      ->add_option("--threshold", flags->threshold,
                   "Say whether they show one person: a squared distance below this")
      ->group("Output");
  command->add_flag("--json", flags->json, "Print JSON")->group("Output");
  command->footer(kVerifyExamples);
  command->callback([flags, &chosen] { chosen = [flags] { return run_verify(*flags); }; });
}

}  // namespace millrace::cli
