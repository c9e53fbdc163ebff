#include "profile/measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

#include "base/median.h"
#include "base/random.h"

namespace millrace::profile {
namespace {

constexpr float kLearningRate = 1e-6f;
constexpr float kGradientScale = 1e-3f;

void write_inputs(train::Worker& worker) {
  const Random random(1, 2);
  for (const compile::Slot& slot : worker.training->inputs) {
    const auto count = static_cast<size_t>(slot.type.elements());
    if (slot.type.dtype == graph::DataType::s32) {
      worker.session->write_input(*worker.training, slot.name, std::vector<int32_t>(count, 0));
      continue;
    }
    const bool gradient = slot.name.find(".grad_from_") != std::string::npos;
    std::vector<float> values(count);
    random.normals(0, values);
    if (gradient) {
      for (float& value : values) value *= kGradientScale;
    }
    worker.session->write_input(*worker.training, slot.name, values);
  }
}

// Times of each instruction in each round, for one worker.
struct Rounds {
  std::vector<std::vector<double>> instructions;  // [instruction][round]
  std::vector<double> totals;

  void add(const std::vector<runtime::InstructionTime>& times) {
    instructions.resize(times.size());
    double total = 0;
    for (size_t i = 0; i < times.size(); ++i) {
      instructions[i].push_back(times[i].seconds);
      total += times[i].seconds;
    }
    totals.push_back(total);
  }

  // Medians of the instructions, in proportion so that they add up to the median of a round: what
  // interrupts a round now and then falls on few instructions, but on every round.
  std::vector<double> medians() const {
    std::vector<double> medians;
    double sum = 0;
    for (const std::vector<double>& one : instructions) {
      medians.push_back(median(one));
      sum += medians.back();
    }
    const double scale = sum > 0 ? median(totals) / sum : 1;
    for (double& one : medians) one *= scale;
    return medians;
  }
};

void run_once(train::Worker& worker, int round, Rounds* rounds) {
  kernels::StepState step;
  step.step = round;
  step.learning_rate = kLearningRate;
  const auto times = worker.session->run_timed(*worker.training, step);
  if (rounds != nullptr) rounds->add(times);
}

// Every device goes on until all have their rounds, so that none is measured beside an idle one.
void run_together(const std::vector<std::vector<size_t>>& teams,
                  const std::vector<std::unique_ptr<train::Worker>>& workers, int warm_up,
                  int count, std::vector<Rounds>& rounds) {
  std::atomic<size_t> finished = 0;
  std::mutex mutex;
  std::exception_ptr error;
  std::vector<std::thread> threads;
  for (const std::vector<size_t>& team : teams) {
    threads.emplace_back([&, team] {
      try {
        for (int round = 0; round < warm_up + count || finished < teams.size(); ++round) {
          const bool counts = round >= warm_up && round < warm_up + count;
          for (const size_t i : team) run_once(*workers[i], round, counts ? &rounds[i] : nullptr);
          if (round + 1 == warm_up + count) ++finished;
        }
      } catch (...) {
        const std::lock_guard lock(mutex);
        error = std::current_exception();
        finished += teams.size();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

// The median of what is enqueued, run to its end.
template <typename Enqueue>
double seconds_on(train::Worker& worker, int rounds, Enqueue&& enqueue) {
  std::vector<double> seconds;
  worker.device->run([&] {
    for (int i = 0; i < rounds; ++i) {
      const auto start = std::chrono::steady_clock::now();
      enqueue();
      worker.session->stream().finish();
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      seconds.push_back(elapsed.count());
    }
  });
  return median(seconds);
}

double seconds_to_copy(train::Worker& worker, const compile::Instruction& instruction, int rounds) {
  const runtime::Session& session = *worker.session;
  const auto place = [&](const compile::Address& address) {
    return session.address(*worker.training, address);
  };
  const backend::DeviceAddress from = place(instruction.inputs[0]);
  const backend::DeviceAddress to = place(instruction.outputs[0]);
  return seconds_on(worker, rounds, [&] {
    session.stream().give(backend::command::Launch{.kernel = instruction.kernel.get(),
                                                   .inputs = {&from, 1},
                                                   .outputs = {&to, 1},
                                                   .workspace = place(instruction.workspace)});
  });
}

double seconds_to_carry(train::Worker& worker, int rounds) {
  if (worker.training->memory.versions < 2) return 0;
  return seconds_on(worker, rounds, [&] { worker.session->copy_version(0, 1); });
}

// Members of a stage differ in what they send and receive alone.
std::vector<double> without_messages(const compile::Program& program,
                                     const std::vector<double>& times) {
  std::vector<double> others;
  for (size_t i = 0; i < times.size(); ++i) {
    if (!program.instructions[i].is_of_message()) others.push_back(times[i]);
  }
  return others;
}

double relative_spread(std::vector<double> values) {
  if (values.size() < 2) return 0;
  std::sort(values.begin(), values.end());
  const double middle = median(values);
  const double low = values[(values.size() - 1) / 4];
  const double high = values[values.size() - 1 - (values.size() - 1) / 4];
  return middle > 0 ? (high - low) / 2 / middle : 0;
}

}  // namespace

double MeasuredProgram::round_spread() const { return relative_spread(totals); }

std::string copy_key(const parallel::Route& route, bool sends) {
  return fmt::format("{} {}.{} {}.{} {}", route.name(), route.from_stage(), route.from_member,
                     route.to_stage(), route.to_member, sends ? "out" : "in");
}

std::vector<MeasuredProgram> measure_programs(train::Engine& engine,
                                              const MeasureOptions& options) {
  const auto& workers = engine.workers();
  std::vector<std::unique_ptr<runtime::DeviceCollectives>> nobodies;
  std::map<backend::Device*, std::vector<size_t>> by_device;
  for (size_t i = 0; i < workers.size(); ++i) {
    nobodies.push_back(std::make_unique<runtime::DeviceCollectives>(
        *workers[i]->device, workers[i]->members, workers[i]->member));
    workers[i]->session->set_collectives(nobodies[i].get());
    write_inputs(*workers[i]);
    by_device[workers[i]->device].push_back(i);
  }
  std::vector<std::vector<size_t>> teams;
  for (const auto& entry : by_device) teams.push_back(entry.second);
  std::vector<Rounds> busy(workers.size());
  run_together(teams, workers, options.warm_up, options.rounds, busy);
  std::vector<Rounds> alone(workers.size());
  // Members of a stage compute the same; the first of each that is here is run alone.
  std::map<int, size_t> first_of_stage;
  for (size_t i = 0; i < workers.size(); ++i) first_of_stage.insert({workers[i]->stage, i});
  if (teams.size() > 1) {
    for (const auto& [stage, i] : first_of_stage) {
      run_together({{i}}, workers, 0, options.alone_rounds, alone);
    }
  }
  std::vector<MeasuredProgram> measured;
  for (size_t i = 0; i < workers.size(); ++i) {
    train::Worker& worker = *workers[i];
    MeasuredProgram one;
    one.stage = worker.stage;
    one.member = worker.member;
    one.program = &*worker.training;
    one.totals = busy[i].totals;
    const std::vector<double> together = busy[i].medians();
    const size_t first = first_of_stage.at(worker.stage);
    const std::vector<double> single =
        without_messages(*workers[first]->training, alone[first].medians());
    size_t place = 0;  // among those that are not of messages
    for (size_t k = 0; k < busy[i].instructions.size(); ++k) {
      const bool known = !one.program->instructions[k].is_of_message() && place < single.size();
      const double by_itself = known ? single[place++] : together[k];
      one.costs.push_back({std::min(by_itself, together[k]), together[k]});
      one.spread.push_back(relative_spread(busy[i].instructions[k]));
    }
    for (const compile::Instruction& instruction : worker.training->instructions) {
      if (!instruction.is_of_message() || instruction.exchanges()) continue;
      const parallel::RouteEnd& end =
          worker.training->channels[static_cast<size_t>(instruction.channel)];
      one.copies[copy_key(end.route, end.sends)] =
          seconds_to_copy(worker, instruction, options.rounds);
    }
    one.carry_seconds = seconds_to_carry(worker, options.alone_rounds);
    worker.session->set_collectives(worker.collectives.get());
    measured.push_back(std::move(one));
  }
  return measured;
}

}  // namespace millrace::profile
