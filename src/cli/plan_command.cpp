#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "cli/activity_line.h"
#include "cli/command.h"
#include "cli/flag_names.h"
#include "cli/job_flags.h"
#include "cli/plan_check.h"
#include "cli/plan_cluster.h"
#include "cli/plan_here.h"
#include "cli/plan_pipedream.h"
#include "cli/plan_profile.h"
#include "comm/mpi_group.h"
#include "profile/prediction_here.h"
#include "train/plan.h"

namespace millrace::cli {
namespace {

constexpr const char* kPlanExamples = R"(Examples:
  Does VGG-16 with 28 images a step fit into 12066 MiB?
    millrace plan --model vgg16 --batch 28 --device-memory 12066MiB
  The same for a program to read:
    millrace plan --model vgg16 --batch 28 --device-memory 12066MiB --json
  What would OneFlow take for it on eight TITAN V, the classifier on a device of its own?
    millrace plan --model vgg16 --batch 28 --cluster titanv-8 --as oneflow \
      --placement 0:0-6.0:7 --stage-weights 11:7
  How does it scale to 64 devices, and what does an epoch cost at 1.20 EUR an hour each?
    millrace plan --auto --cluster titanv-8 --model vgg16 --batch 32 --sweep devices=1..64 --price 1.2
  Which plan is the fastest on sixteen of them, and what holds it up? (leave out --explain for the plan alone)
    millrace plan --auto --cluster titanv-8x2 --model vgg16 --batch 32 --explain
  And on this machine? Plans that are worth it are measured:
    millrace plan --auto --cluster here --model resnet18 --global-batch 16 --output plan.json
  How long will a step take here, by a profile of its programs, and how long does it take?
    millrace plan --check --model resnet50 --batch 8 --placement 0:0.0:1 --steps 5
  The same with both timelines, one above the other, as a page:
    millrace plan --check --model resnet50 --batch 8 --placement 0:0.0:1 --steps 5 --run run
    millrace report run -o run/report
  Divide a profiled network into stages on 2 servers of 4 devices, by PipeDream's optimizer:
    millrace plan --strategy pipedream --profile vgg16.txt --workers 4,2 --bandwidth 1e10,1e9
  The same by our own search, with PipeDream's plan beside it:
    millrace plan --auto --profile vgg16.txt --profile-batch 64 --workers 4,2 --bandwidth 1e10,1e9
  From a saved profile of a job, without measuring again:
    millrace profile --model resnet50 --batch 8 --output saved.json
    millrace plan --predict --profile saved.json --model resnet50 --batch 8

Without --cluster the memory is exact: it is the size of the one block that the job would
allocate; the time is that of its programs in the simulator, each operator by its arithmetic and
memory traffic and a short measurement of this machine. With --cluster both come from a model that was fitted to published
results ('millrace bench published' shows how well). Exit status: 0 also when the job does not fit (see "fits"), 2 bad usage or input.)";

struct PlanCommandFlags {
  JobFlags job;
  PipedreamFlags pipedream;
  ClusterFlags cluster;
  CheckFlags check;
  std::string workers = "2";
  bool json = false;
  bool print_program = false;
};

// Devices that run the same program stand above one.
void print_programs(const Json& plan) {
  const Json& devices = plan["devices"];
  for (size_t i = 0; i < devices.size(); ++i) {
    if (!devices[i].contains("program")) return;
    const auto text = devices[i]["program"].get<std::string>();
    fmt::print("\nProgram of stage {}, device {}\n", devices[i]["stage"].get<int>(),
               devices[i]["id"].get<std::string>());
    const bool repeated =
        i + 1 < devices.size() && devices[i + 1]["program"] == devices[i]["program"];
    if (!repeated) fmt::print("{}", text);
  }
}

// Predictions from programs measured here, and checks of them, take the devices of this job alone.
int run_check_of(const PlanCommandFlags& flags, comm::MpiSession* session) {
  if (flags.cluster.automatic || !flags.cluster.cluster.empty()) {
    fail_input(
        "--check and --predict take the job as its flags place it here, without --auto and "
        "--cluster; "
        "write a plan with --auto --output plan.json first and give --plan plan.json.");
  }
  constexpr int64_t kSteps = 5;
  JobFlags job_flags = flags.job;
  job_flags.workers = parse_count(flags.workers, "--workers");
  train::TrainJob job = to_job(job_flags, session == nullptr ? 1 : session->size());
  job.processes = session;
  if (job.steps == 0 && job.epochs == 0) job.steps = kSteps;
  train::check(job);
  return run_check(flags.check, std::move(job), {flags.cluster.trace, flags.pipedream.profile},
                   flags.json);
}

int run_plan(const PlanCommandFlags& flags) {
  JobFlags job_flags = flags.job;
  job_flags.workers = parse_count(flags.workers, "--workers");
  int nodes = 1;
  if (!flags.job.plan.placement.empty()) {
    for (const parallel::Placement& stage : parallel::parse_stages(flags.job.plan.placement)) {
      for (const parallel::DeviceId& device : stage.devices)
        nodes = std::max(nodes, device.node + 1);
    }
  }
  train::TrainJob job = to_job(job_flags, nodes);
  if (job.steps == 0 && job.epochs == 0) job.steps = 1;
  train::check(job);
  ActivityLine messages;
  const Json plan = profile::describe_plan(job, messages, flags.print_program);
  messages.clear();
  if (flags.json) {
    fmt::print("{}\n", with_flags(plan.dump(2)));
  } else {
    fmt::print("{}", with_flags(train::plan_text(plan)));
    print_programs(plan);
  }
  return kExitSuccess;
}

}  // namespace

void add_plan_command(CLI::App& program, Action& chosen, comm::MpiSession* session) {
  auto flags = std::make_shared<PlanCommandFlags>();
  CLI::App* command = program.add_subcommand(
      "plan", "Say what a job will cost in time and memory, without running it");
  add_model_flags(*command, flags->job);
  add_data_flags(*command, flags->job);
  add_training_flags(*command, flags->job);
  add_device_flags(*command, flags->job);
  command->remove_option(command->get_option("--workers"));
  command
      ->add_option("--workers", flags->workers,
                   "Threads that read and decode ahead of the training step; with --strategy "
                   "pipedream or --profile the workers of each level, innermost first, such as 4,2")
      ->group("Data")
      ->capture_default_str();
  add_pipedream_flags(*command, flags->pipedream);
  add_cluster_flags(*command, flags->cluster);
  add_check_flags(*command, flags->check);
  command->add_flag("--json", flags->json, "Print JSON")->group("Output");
  command
      ->add_flag("--print-program", flags->print_program,
                 "Also print the instructions of each device; with the job's own flags alone")
      ->group("Output");
  command->footer(kPlanExamples);
  command->callback([flags, command, session, &chosen] {
    chosen = [flags, command, session] {
      if (uses_check(flags->check)) return run_check_of(*flags, session);
      const ProfilePlanFlags profile = {flags->cluster, flags->pipedream, flags->job,
                                        flags->workers, flags->json};
      if (uses_profile(*command, profile)) return run_profile_plan(*command, profile);
      if (uses_pipedream(*command, flags->pipedream)) {
        return run_pipedream(flags->pipedream, flags->workers, flags->json);
      }
      if (plans_here(flags->cluster)) {
        if (session != nullptr) {
          fail_input("--auto on this machine measures in one process; leave out mpirun.");
        }
        return run_here_plan(*command, flags->cluster, flags->check, flags->job, flags->json);
      }
      if (uses_cluster(*command, flags->cluster)) {
        return run_cluster_plan(*command, flags->cluster, flags->job, flags->json);
      }
      return run_plan(*flags);
    };
  });
}

}  // namespace millrace::cli
