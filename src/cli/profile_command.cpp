#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/job_flags.h"
#include "cli/progress.h"
#include "comm/mpi_group.h"
#include "profile/job_profile.h"
#include "profile/machine.h"

namespace millrace::cli {
namespace {

constexpr const char* kProfileExamples = R"(Examples:
  Which layers of ResNet-50 take the time?
    millrace profile --model resnet50 --batch 8
  A profile for PipeDream's optimizer, and what that makes of it:
    millrace profile --model vgg16 --batch 8 --format pipedream --output vgg16.txt
    millrace plan --strategy pipedream --profile vgg16.txt --workers 4 --bandwidth 1e9
  This machine as two devices, for the planner:
    millrace profile --machine --devices 2 --output here.json
    millrace plan --cluster here.json --model resnet50 --batch 8

Every program of the job is run with all of its devices at work at once, as in training, but
nothing is exchanged; times are medians. With --machine under mpirun the network between the first
two processes is measured as well.)";

struct ProfileFlags {
  JobFlags job;
  bool machine = false;
  bool json = false;
  std::string output;
  std::string format = "json";
  int rounds = 5;
  int64_t top = 20;
};

void write_or_print(const ProfileFlags& flags, const std::string& text) {
  if (flags.output.empty()) {
    fmt::print("{}", text);
  } else {
    write_text(flags.output, text);
    fmt::print("Written to {}.\n", flags.output);
  }
}

std::string rate(double value) { return fmt::format("{:.4g} G", value / 1e9); }

int run_machine(const ProfileFlags& flags, comm::MpiSession* session) {
  const int devices = flags.job.plan.devices;
  if (devices < 0) fail_input("--devices is {}; give at least 1.", devices);
  const simulate::Cluster cluster = profile::measure_machine(
      {.devices = std::max(1, devices), .threads = flags.job.threads, .processes = session});
  if (session != nullptr && session->rank() != 0) return kExitSuccess;
  const std::string text = planner::describe(cluster).dump(2) + "\n";
  if (flags.json || flags.output.empty()) fmt::print("{}", flags.json ? text : "");
  if (!flags.output.empty()) write_text(flags.output, text);
  if (flags.json) return kExitSuccess;
  fmt::print("{}: {} device{} on {} cores\n", cluster.device.name, cluster.devices_per_machine,
             cluster.devices_per_machine == 1 ? "" : "s", cluster.host_cores);
  fmt::print("  float32    {} operations/s each, all at work\n",
             rate(cluster.device.fp32_operations));
  if (cluster.device.bf16_operations > 0) {
    fmt::print("  bfloat16   {} operations/s\n", rate(cluster.device.bf16_operations));
  }
  fmt::print("  memory     {} bytes/s, {}\n", rate(cluster.device.memory_bandwidth),
             format_bytes(static_cast<uint64_t>(cluster.device.memory_bytes)));
  const simulate::LinkClass& link = cluster.classes.begin()->second;
  fmt::print("  messages   {} bytes/s, {:.1f} µs\n", rate(link.bandwidth), 1e6 * link.latency);
  if (cluster.machines > 1) {
    fmt::print("  network    {} bytes/s, {:.1f} µs\n", rate(cluster.network.bandwidth),
               1e6 * cluster.network.latency);
  }
  if (!flags.output.empty()) fmt::print("Written to {}.\n", flags.output);
  return kExitSuccess;
}

int run_profile(const ProfileFlags& flags, comm::MpiSession* session) {
  if (!flags.output.empty()) require_writable(flags.output, "--output");
  if (flags.machine) return run_machine(flags, session);
  if (session != nullptr) {
    fail_input("Programs are profiled in one process; leave out mpirun, or give --machine.");
  }
  const bool pipedream = choose("--format", flags.format, {"json", "pipedream"}) == 1;
  if (flags.rounds < 1 || flags.rounds > 1000) {
    fail_input("--rounds is {}; give 1 to 1000.", flags.rounds);
  }
  if (flags.top < 0) fail_input("--top is {}; give at least 0.", flags.top);
  train::TrainJob job = to_job(flags.job);
  if (job.steps == 0 && job.epochs == 0) job.steps = 1;
  train::check(job);
  ProgressPrinter messages(true);
  const profile::JobProfile profile = profile::profile_job(job, {.rounds = flags.rounds}, messages);
  const std::string text = pipedream ? planner::format_profile(profile::to_pipedream(profile))
                                     : profile::to_json(profile).dump(1) + "\n";
  const bool prints_file = flags.output.empty() && (pipedream || flags.json);
  if (prints_file || flags.json) {
    if (!flags.output.empty()) write_text(flags.output, text);
    fmt::print("{}", flags.json ? profile::to_json(profile).dump(1) + "\n" : text);
    return kExitSuccess;
  }
  fmt::print(
      "{}, {} samples at a time, {} device{} at work, {} thread{} each, {} rounds that differ "
      "by {:.1f} %\n\n",
      profile.model, profile.micro_batch, profile.devices, profile.devices == 1 ? "" : "s",
      profile.threads, profile.threads == 1 ? "" : "s", profile.rounds, 100 * profile.step_spread);
  fmt::print("{}", profile::layer_table(profile, static_cast<size_t>(flags.top)));
  if (!flags.output.empty()) write_or_print(flags, text);
  return kExitSuccess;
}

}  // namespace

void add_profile_command(CLI::App& program, Action& chosen, comm::MpiSession* session) {
  auto flags = std::make_shared<ProfileFlags>();
  CLI::App* command = program.add_subcommand(
      "profile", "Measure what the layers of a model take here, or this machine");
  add_model_flags(*command, flags->job);
  command->get_option("--model")->required(false);
  add_training_flags(*command, flags->job);
  add_device_flags(*command, flags->job);
  command
      ->add_flag("--machine", flags->machine,
                 "Measure this machine instead, as a cluster that plan --cluster reads")
      ->group("Profile");
  command->add_option("--rounds", flags->rounds, "How often each program is measured")
      ->group("Profile")
      ->capture_default_str();
  command->add_option("--format", flags->format, "Of the file: json, or PipeDream's text")
      ->group("Output")
      ->capture_default_str();
  command->add_option("--output", flags->output, "Write the profile to this file")->group("Output");
  command->add_option("--top", flags->top, "Layers in the table")
      ->group("Output")
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print JSON")->group("Output");
  command->footer(kProfileExamples);
  command->callback([flags, session, &chosen] {
    chosen = [flags, session] { return run_profile(*flags, session); };
  });
}

}  // namespace millrace::cli
