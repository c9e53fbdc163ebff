#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/card_flags.h"
#include "cli/command.h"
#include "cli/image_list.h"
#include "cli/job_flags.h"
#include "cli/look_flags.h"
#include "cli/progress.h"
#include "train/prediction.h"

namespace millrace::cli {
namespace {

constexpr const char* kPredictExamples = R"(Examples:
    millrace predict runs/pets photos/*.jpg --top 3
    millrace predict runs/pets photos --json -o labels.json
    find photos -name '*.jpg' | millrace predict pets.safetensors - --csv
    millrace predict resnet50.pth --model resnet50 cat.jpg

The names of the classes and what is done to images are those that the weights were trained with;
they are in checkpoints and in files of `millrace ckpt export`.)";

struct PredictFlags {
  LookFlags look;
  std::vector<std::string> files;
  int64_t top = 5;
  int crops = 1;
  bool json = false, csv = false;
  std::string output;
};

// A field of a line of commas, by RFC 4180.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char letter : text) {
    if (letter == '"') quoted += '"';
    quoted += letter;
  }
  return quoted + '"';
}

// Collects what is told of each file in one of the three forms.
class PredictionText {
 public:
  PredictionText(const PredictFlags& flags, const train::ModelCard& card)
      : flags_(flags), card_(card) {
    if (flags.csv) text_ = "file,rank,class,name,share\n";
  }

  void add(const std::string& file, const std::vector<train::ClassShare>& best) {
    Json shares = Json::array();
    std::string line = file + ":";
    for (size_t i = 0; i < best.size(); ++i) {
      const std::string name = train::class_name(card_, best[i].label);
      shares.push_back(
          {{"class", best[i].label}, {"name", printable(name)}, {"share", best[i].share}});
      line += fmt::format("{} {} {:.2f} %", i == 0 ? "" : ",", name, 100 * best[i].share);
      if (flags_.csv) {
        text_ += fmt::format("{},{},{},{},{:.6g}\n", csv_field(file), i + 1, best[i].label,
                             csv_field(name), best[i].share);
      }
    }
    if (flags_.json) json_.push_back({{"file", printable(file)}, {"top", std::move(shares)}});
    if (!flags_.csv && !flags_.json) text_ += on_one_line(line) + "\n";
  }

  std::string text() const { return flags_.json ? json_.dump(2) + "\n" : text_; }

 private:
  const PredictFlags& flags_;
  const train::ModelCard& card_;
  Json json_ = Json::array();
  std::string text_;
};

// The name of the file says the form where no flag does.
void choose_form(PredictFlags& flags) {
  const std::string ending = std::filesystem::path(flags.output).extension().string();
  if (flags.json || flags.csv) return;
  flags.json = ending == ".json";
  flags.csv = ending == ".csv";
}

int run_predict(PredictFlags flags) {
  choose_form(flags);
  if (flags.json && flags.csv) fail_input("--json and --csv are two forms; choose one.");
  if (flags.top < 1) fail_input("--top is {}; give at least 1.", flags.top);
  require_weights(flags.look);
  const std::vector<std::filesystem::path> files = list_images(flags.files);
  if (!flags.output.empty()) require_writable(flags.output, "--output");
  const train::TrainJob job = look_job(flags.look, files.size());
  const train::ModelCard card = train::card_of(job);
  ProgressPrinter messages(true);
  PredictionText text(flags, card);
  const train::UnreadFiles unread = train::predict_files(
      job, files, messages,
      [&](size_t file, std::span<const float> logits) {
        text.add(files[file].string(), train::best_classes(logits, flags.top));
      },
      flags.crops);
  tell_unread(unread);
  if (flags.output.empty()) {
    fmt::print("{}", text.text());
  } else {
    write_text(flags.output, text.text());
  }
  return kExitSuccess;
}

}  // namespace

void add_predict_command(CLI::App& program, Action& chosen) {
  auto flags = std::make_shared<PredictFlags>();
  CLI::App* command = program.add_subcommand("predict", "Tell the classes of pictures");
  add_look_flags(*command, flags->look);
  add_crops_flag(*command, flags->crops);
  command->add_option("files", flags->files, "Images, directories of them, or - for a list")
      ->group("Images");
  command->add_option("--top", flags->top, "How many classes to tell of each")
      ->group("Output")
      ->capture_default_str();
  command->add_flag("--json", flags->json, "As JSON")->group("Output");
  command->add_flag("--csv", flags->csv, "As a table with commas")->group("Output");
  command
      ->add_option("-o,--output", flags->output,
                   "Write there instead of printing; a name in .json or .csv chooses that form")
      ->group("Output");
  command->footer(kPredictExamples);
  command->callback([flags, &chosen] { chosen = [flags] { return run_predict(*flags); }; });
}

}  // namespace millrace::cli
