#include <fmt/format.h>

#include "base/error.h"
#include "profile/job_profile.h"

namespace millrace::profile {
namespace {

// Compares a saved profile with the job that is to be predicted from it.
class Match {
 public:
  explicit Match(std::string_view file) : file_(file) {}

  template <typename Value>
  void same(std::string_view what, const Value& saved, const Value& wanted) const {
    if (saved != wanted) fail(fmt::format("its {} is {}, here it is {}", what, saved, wanted));
  }

  [[noreturn]] void fail(const std::string& difference) const {
    fail_input("'{}' is the profile of another job: {}; profile this one.", file_, difference);
  }

 private:
  std::string_view file_;
};

MeasuredProgram restore(const ProgramProfile& saved, const train::Worker& worker,
                        const Match& match) {
  const std::string place =
      fmt::format("program of stage {}, member {}", worker.stage, worker.member);
  const auto& instructions = worker.training->instructions;
  if (saved.operators.size() != instructions.size()) {
    match.fail(fmt::format("its {} has {} instructions, here it has {}", place,
                           saved.operators.size(), instructions.size()));
  }
  MeasuredProgram measured;
  measured.stage = worker.stage;
  measured.member = worker.member;
  measured.program = &*worker.training;
  measured.totals = saved.round_seconds;
  measured.copies = saved.copies;
  measured.carry_seconds = saved.carry_seconds;
  for (size_t i = 0; i < instructions.size(); ++i) {
    const OperatorCost& cost = saved.operators[i];
    if (cost.name != instructions[i].name) {
      match.fail(fmt::format("instruction {} of its {} is '{}', here it is '{}'", i, place,
                             cost.name, instructions[i].name));
    }
    measured.costs.push_back({cost.alone_seconds, cost.seconds});
    measured.spread.push_back(cost.spread);
  }
  return measured;
}

void require_copies(const MeasuredProgram& measured, const train::PipelineLayout& layout,
                    const Match& match) {
  for (const parallel::RouteEnd& end : layout.ends(measured.stage, measured.member)) {
    const std::string key = copy_key(end.route, end.sends);
    if (!measured.copies.contains(key)) match.fail(fmt::format("it has no copy '{}'", key));
  }
}

}  // namespace

std::vector<MeasuredProgram> programs_of(const JobProfile& profile, const train::StepSettings& job,
                                         train::Engine& engine, std::string_view file) {
  const Match match(file);
  match.same("model", profile.model, job.model);
  match.same("batch", profile.batch, job.options.batch);
  match.same("micro-batch", profile.micro_batch, engine.graphs().micro_batch());
  match.same("image size", profile.image, job.options.image);
  match.same("number of threads of a device", profile.threads, engine.device().threads());
  match.same("number of devices", profile.devices, static_cast<int>(job.plan.devices().size()));
  match.same("number of programs", profile.programs.size(), engine.workers().size());
  std::vector<MeasuredProgram> programs;
  for (size_t i = 0; i < profile.programs.size(); ++i) {
    const train::Worker& worker = *engine.workers()[i];
    match.same(fmt::format("program {}'s stage", i), profile.programs[i].stage, worker.stage);
    match.same(fmt::format("program {}'s member", i), profile.programs[i].member, worker.member);
    programs.push_back(restore(profile.programs[i], worker, match));
    require_copies(programs.back(), engine.layout(), match);
  }
  return programs;
}

}  // namespace millrace::profile
