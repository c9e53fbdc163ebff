// A tour of the program: commands that a user could type, one after the other.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "backend/cpu/cores.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/command_line.h"

namespace millrace::cli {
namespace {

constexpr const char* kFashionMnist = "/usr/share/datasets/fashion-mnist";

constexpr const char* kDemoExamples = R"(Examples:
    millrace demo
    millrace demo --data idx:/usr/share/datasets/fashion-mnist --epochs 8 -o run/demo

Plans, trains on two devices, evaluates, trains the same network as a pipeline and writes a report
page; prints each command before it runs it. Without --data it takes Fashion-MNIST where Debian's
package dataset-fashion-mnist is installed, and otherwise pictures that it makes.)";

struct DemoFlags {
  std::string data;
  std::string output = "millrace-demo";
  int64_t epochs = 0;
};

struct DemoData {
  std::string source;
  std::string what;
  int64_t epochs;  // that take about a minute on two cores
};

using Words = std::vector<std::string>;

// Runs a command as if it had been typed. A tour ends with the first that does not succeed.
class Tour {
 public:
  explicit Tour(Interruption& interruption) : interruption_(interruption) {}

  bool step(std::string_view title, const Words& words) {
    if (status_ != kExitSuccess) return false;
    fmt::print("\n{}\n$ millrace {}\n", title, fmt::join(words, " "));
    std::fflush(stdout);
    status_ = run_command_line(words, nullptr, interruption_);
    return status_ == kExitSuccess;
  }
  int status() const { return status_; }

 private:
  Interruption& interruption_;
  int status_ = kExitSuccess;
};

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string in(const DemoFlags& flags, std::string_view name) {
  return (std::filesystem::path(flags.output) / name).string();
}

DemoData choose_data(const DemoFlags& flags) {
  if (!flags.data.empty()) return {flags.data, flags.data, 2};
  if (std::filesystem::exists(kFashionMnist)) {
    return {fmt::format("idx:{}", kFashionMnist), "Fashion-MNIST, 60 000 real pictures of clothes",
            2};
  }
  return {"idx:" + in(flags, "pictures"), "10 000 pictures of ten kinds, made here", 6};
}

bool make_pictures(Tour& tour, const DemoFlags& flags, const DemoData& data) {
  if (!flags.data.empty() || std::filesystem::exists(kFashionMnist)) return true;
  const Words size = {"--classes", "10", "--width", "28", "--height", "28", "--channels", "1"};
  make_directory(in(flags, "pictures"), "--output");
  return tour.step("Pictures to learn from.",
                   joined({"data", "synth", data.source, "--count", "10000"}, size)) &&
         tour.step("Others to be tested with.", joined({"data", "synth", data.source, "--split",
                                                        "test", "--seed", "1", "--count", "2000"},
                                                       size));
}

void show_page(const std::string& directory) {
  const auto page = std::filesystem::absolute(directory) / "index.html";
  fmt::print("\nThe report, with curves, memory and a timeline of both devices:\n  {}\n",
             page.string());
  std::fflush(stdout);
  const bool has_display =
      std::getenv("DISPLAY") != nullptr || std::getenv("WAYLAND_DISPLAY") != nullptr;
  if (!has_display || ::isatty(STDOUT_FILENO) == 0) return;
  // Whoever watches has been told the path; a viewer that is missing or fails changes nothing.
  if (::fork() == 0) {
    ::execlp("xdg-open", "xdg-open", page.c_str(), static_cast<char*>(nullptr));
    ::_exit(1);
  }
}

int run_demo(const DemoFlags& flags, Interruption& interruption) {
  if (flags.epochs < 0) fail_input("--epochs is {}; give at least 1.", flags.epochs);
  make_directory(flags.output, "--output");
  const DemoData data = choose_data(flags);
  const std::string epochs = fmt::format("{}", flags.epochs > 0 ? flags.epochs : data.epochs);
  const Words job = joined({"--model", "fashion_cnn", "--batch", "64", "--data", data.source},
                           backend::available_cores() < 2 ? Words{"--oversubscribe"} : Words{});
  const Words pipeline = {"--placement", "0:0.0:1", "--microbatches", "4"};
  const auto outputs = [&](const std::string& name) {
    make_directory(in(flags, name), "--output");
    return Words{"--summary", in(flags, name + "/summary.json"), "--metrics",
                 in(flags, name + "/metrics.jsonl")};
  };

  fmt::print("Data: {}.\n", data.what);
  Tour tour(interruption);
  make_pictures(tour, flags, data);
  tour.step("What a residual network on two devices needs, before anything runs.",
            joined({"plan", "--devices", "2"}, job));
  tour.step("Train it: each device takes half of every batch.",
            joined(joined({"train",
                           "--devices",
                           "2",
                           "--eval-data",
                           data.source,
                           "--eval-every",
                           "1e",
                           "--epochs",
                           epochs,
                           "--lr",
                           "0.1",
                           "--nesterov",
                           "--weight-decay",
                           "0.0005",
                           "--lr-schedule",
                           "cosine",
                           "--lr-warmup-steps",
                           "100",
                           "--save-weights",
                           in(flags, "weights.safetensors")},
                          job),
                   outputs("data-parallel")));
  tour.step(
      "The same network as a pipeline: the first layers on one device, the rest on the other.",
      joined(joined({"train", "--steps", "40", "--lr", "0.05", "--trace",
                     in(flags, "pipeline/trace.json")},
                    joined(job, pipeline)),
             outputs("pipeline")));
  tour.step("What both did.", {"report", flags.output, "-o", in(flags, "report")});
  if (tour.status() == kExitSuccess) show_page(in(flags, "report"));
  return tour.status();
}

}  // namespace

void add_demo_command(CLI::App& program, Action& chosen, Interruption& interruption) {
  auto flags = std::make_shared<DemoFlags>();
  CLI::App* command =
      program.add_subcommand("demo", "See all of it in about a minute: plan, train, report");
  command->add_option("--data", flags->data,
                      "Small grey pictures to train on, FORMAT:PATH with a test split");
  command->add_option("--epochs", flags->epochs, "Passes over the data [about a minute of them]");
  command->add_option("-o,--output", flags->output, "Directory for everything that it writes")
      ->capture_default_str();
  command->footer(kDemoExamples);
  command->callback([flags, &chosen, &interruption] {
    chosen = [flags, &interruption] { return run_demo(*flags, interruption); };
  });
}

}  // namespace millrace::cli
