// How an engine makes its devices' programs and joins them to groups.
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/memory.h"
#include "base/shortage.h"
#include "base/text.h"
#include "comm/texts.h"
#include "train/device_report.h"
#include "train/engine.h"
#include "train/plan.h"
#include "train/stage_options.h"

namespace millrace::train {
namespace {

std::string layouts_as_text(const std::map<std::string, graph::Layout>& layouts) {
  Json json = Json::object();
  for (const auto& [name, layout] : layouts) json[name] = layout.tag();
  return json.dump();
}

std::map<std::string, graph::Layout> layouts_from_text(const std::string& text) {
  std::map<std::string, graph::Layout> layouts;
  const Json json = Json::parse(text);
  for (const auto& [name, tag] : json.items()) {
    layouts[name] = graph::Layout(tag.get<std::string>());
  }
  return layouts;
}

void say_what_runs_again(const std::vector<std::unique_ptr<Worker>>& workers,
                         TrainingObserver& observer) {
  int operators = 0;
  double share = 0;
  for (const auto& worker : workers) {
    if (!worker->training || worker->training->recomputed_costly == 0) continue;
    operators = std::max(operators, worker->training->recomputed);
    share = std::max(share, recomputed_share(*worker->training));
  }
  if (operators == 0) return;
  observer.on_message(Severity::note,
                      fmt::format("To fit into ‹device_memory›, up to {} operators of a device run "
                                  "again in the backward pass, with {:.0f} % more arithmetic.",
                                  operators, 100 * share));
}

std::string name_of_this_host() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

// What the job's processes on this host take together. Collective.
int64_t bytes_on_this_host(const std::vector<DeviceReport>& own, comm::Group* ranks) {
  int64_t bytes = kProcessBytes;
  for (const DeviceReport& report : own) bytes += report.arena_bytes;
  if (ranks == nullptr) return bytes;
  const std::string host = name_of_this_host() + " ";
  int64_t together = 0;
  for (const std::string& text : comm::gather_texts(*ranks, host + std::to_string(bytes))) {
    if (text.starts_with(host)) together += std::stoll(text.substr(host.size()));
  }
  return together;
}

void require_host_memory(int64_t bytes) {
  const int64_t memory = host_memory();
  if (bytes <= memory) return;
  fail_input(
      "The job needs {} of memory on this host, which has {}; use a smaller ‹batch›, more "
      "‹microbatches›, ‹recompute› all or a ‹precision› of 16 bits.",
      format_bytes(static_cast<uint64_t>(bytes)), format_bytes(static_cast<uint64_t>(memory)));
}

}  // namespace

void Engine::compile(const StepSettings& job, Purpose purpose, TrainingObserver& observer) {
  try {
    compile_stages(job, purpose);
    std::vector<DeviceReport> reports;
    for (const auto& worker : workers_) reports.push_back(report_of(*worker));
    const std::string crowded = crowded_device(reports, job.device_memory);
    if (!crowded.empty()) fail_input("{}", crowded);
    require_host_memory(bytes_on_this_host(reports, rank_group()));
    if (job.recompute == passes::RecomputePolicy::automatic)
      say_what_runs_again(workers_, observer);
  } catch (const std::exception& error) {
    fail(failure_text(error));
    throw;
  }
  if (!choices_.warning().empty()) observer.on_message(Severity::warning, choices_.warning());
  join_workers();
  inject_faults(job);
}

void Engine::make_workers() {
  const auto devices = parallel::devices_by_rank(plan_, ranks())[static_cast<size_t>(rank())];
  for (int stage = 0; stage < plan_.stage_count(); ++stage) {
    const parallel::Placement& placement = plan_.stages[static_cast<size_t>(stage)];
    for (int member = 0; member < placement.size(); ++member) {
      const parallel::DeviceId id = placement.devices[static_cast<size_t>(member)];
      if (id.node != rank()) continue;
      auto worker = std::make_unique<Worker>();
      worker->id = id;
      worker->stage = stage;
      worker->member = member;
      worker->members = placement.size();
      const auto place = std::find(devices.begin(), devices.end(), id) - devices.begin();
      worker->device = devices_[static_cast<size_t>(place)].get();
      workers_.push_back(std::move(worker));
    }
  }
}

// All devices of a stage hold the parameters in the layouts that its first device prefers, so that
// their gradients can be added as they lie in memory.
void Engine::compile_stages(const StepSettings& job, Purpose purpose) {
  share_choices(0);
  for (int stage = 0; stage < plan_.stage_count(); ++stage) {
    const parallel::Placement& placement = plan_.stages[static_cast<size_t>(stage)];
    const int leader = placement.devices[0].node;
    std::map<std::string, graph::Layout> layouts;
    bool know_layouts = false;
    for (const auto& worker : workers_) {
      if (worker->stage != stage || worker->member != 0) continue;
      compile_worker(*worker, options_of(*worker, job), purpose);
      layouts = compile::layouts_of_parameters(worker->largest());
      know_layouts = true;
    }
    share_choices(leader);
    if (rank_group_) {
      const std::string own = know_layouts ? layouts_as_text(layouts) : "";
      layouts = layouts_from_text(comm::broadcast_text(*rank_group_, own, leader));
    }
    for (const auto& worker : workers_) {
      if (worker->stage != stage || worker->member == 0) continue;
      compile::CompileOptions options = options_of(*worker, job);
      options.layouts = layouts;
      options.dump_directory.clear();
      compile_worker(*worker, options, purpose);
    }
  }
}

// Devices that do the same work do it in the same way, whichever process they are in.
void Engine::share_choices(int root) {
  if (!rank_group_) return;
  const Json known = {{"measured", choices_.measured()}, {"used", choices_.used()}};
  const Json theirs =
      Json::parse(comm::broadcast_text(*rank_group_, root == rank() ? known.dump() : "", root));
  if (root == rank()) return;
  choices_.take_measured(theirs["measured"].get<kernels::ConvolutionChoices::Methods>());
  choices_.adopt(theirs["used"].get<kernels::ConvolutionChoices::Methods>());
}

parallel::StageGraph Engine::local_graph(const Worker& worker) const {
  return graphs_.local(worker.stage, plan_.round_robin ? 0 : worker.member);
}

compile::CompileOptions Engine::options_of(const Worker& worker, const StepSettings& job) {
  compile::CompileOptions options =
      stage_options(job, worker.stage, worker.member, worker.device->threads(), &choices_);
  options.shape.channels = layout_.ends(worker.stage, worker.member);
  return options;
}

void Engine::compile_worker(Worker& worker, const compile::CompileOptions& options,
                            Purpose purpose) {
  const parallel::StageGraph graph = local_graph(worker);
  compile::CompileOptions forward_only = options;
  forward_only.shape.channels = layout_.ends_of_evaluation(worker.stage, worker.member);
  worker.device->run([&] {
    if (purpose == Purpose::evaluation) {
      worker.evaluation = compile::compile_evaluation(graph.graph, forward_only);
      return;
    }
    worker.training = compile::compile_stage(graph, options);
    if (purpose == Purpose::training_and_evaluation) {
      worker.evaluation = compile::compile_evaluation(graph.graph, forward_only, *worker.training);
    }
  });
}

void Engine::join_workers() {
  const auto devices = parallel::devices_by_rank(plan_, ranks());
  for (int stage = 0; stage < plan_.stage_count(); ++stage) {
    const parallel::Placement& placement = plan_.stages[static_cast<size_t>(stage)];
    if (placement.size() == 1) continue;
    std::vector<comm::Member> members;
    for (const parallel::DeviceId& id : placement.devices) {
      const auto& list = devices[static_cast<size_t>(id.node)];
      const auto place = std::find(list.begin(), list.end(), id) - list.begin();
      members.push_back({id.node, static_cast<int>(place)});
    }
    std::vector<comm::Group> direct = groups_.make(members, 3 * stage + 1);
    std::vector<comm::Group> background = groups_.make(members, 3 * stage + 2);
    // What the host decides must not get in between what its device was given to do.
    const bool decides = !plan_.static_scheduling && !plan_.round_robin;
    std::vector<comm::Group> agreement;
    if (decides) agreement = groups_.make(members, 3 * stage + 3);
    size_t next = 0;
    for (const auto& worker : workers_) {
      if (worker->stage != stage) continue;
      worker->collectives = std::make_unique<runtime::DeviceCollectives>(
          *worker->device, direct[next], background[next]);
      if (decides) worker->agreement = agreement[next];
      ++next;
    }
  }
}

}  // namespace millrace::train
