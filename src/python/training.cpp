#include "python/training.h"

#include <nanobind/stl/string.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "base/error.h"
#include "python/arrays.h"
#include "python/teams.h"

namespace millrace::python {
namespace {

namespace nb = nanobind;
using namespace std::chrono_literals;

void require_callable(nb::handle called, std::string_view name) {
  if (called.is_none() || PyCallable_Check(called.ptr()) != 0) return;
  throw nb::type_error(
      fmt::format("{} must be a function, not a {}.", name, nb::type_name(called.type()).c_str())
          .c_str());
}

// Calls with the lock, from the thread that trains.
api::Callbacks callbacks_of(const nb::object& on_step, const nb::object& on_evaluation,
                            const nb::object& on_message) {
  require_callable(on_step, "on_step");
  require_callable(on_evaluation, "on_evaluation");
  require_callable(on_message, "on_message");
  api::Callbacks callbacks;
  if (!on_step.is_none()) {
    callbacks.on_step = [&on_step](const train::StepReport& report) {
      const EndTeams ended;
      const nb::gil_scoped_acquire gil;
      const nb::object answer = on_step(report);
      return answer.is_none() || nb::cast<bool>(nb::bool_(answer));
    };
  }
  if (!on_evaluation.is_none()) {
    callbacks.on_evaluation = [&on_evaluation](const train::EvaluationReport& report) {
      const EndTeams ended;
      const nb::gil_scoped_acquire gil;
      on_evaluation(report);
    };
  }
  if (!on_message.is_none()) {
    callbacks.on_message = [&on_message](const std::string& sentence) {
      const EndTeams ended;
      const nb::gil_scoped_acquire gil;
      on_message(sentence);
    };
  }
  return callbacks;
}

// What is under way in this process. At the interpreter's end a thread that asks for its lock is
// ended, which C++ cannot take part in: until then all of it has to stop.
class Attended {
 public:
  void begin(std::atomic<bool>& stop) {
    const std::lock_guard lock(mutex_);
    stops_.insert(&stop);
    stop = ended_;
  }
  void end(std::atomic<bool>& stop) {
    const std::lock_guard lock(mutex_);
    stops_.erase(&stop);
    changed_.notify_all();
  }
  void stop_all() {
    std::unique_lock lock(mutex_);
    ended_ = true;
    for (std::atomic<bool>* stop : stops_) *stop = true;
    changed_.wait(lock, [this] { return stops_.empty(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::atomic<bool>*> stops_;
  bool ended_ = false;
};

Attended& attended_here() {
  static Attended attended;  // as there is one interpreter
  return attended;
}

constexpr auto kListens = 50ms;
constexpr auto kLong = 300ms;  // after a signal, that a person should be told of

}  // namespace

void attend(const std::function<void(std::atomic<bool>& stop)>& action) {
  std::atomic<bool> stop = false;
  attended_here().begin(stop);
  const auto end = [](std::atomic<bool>* done) { attended_here().end(*done); };
  const std::unique_ptr<std::atomic<bool>, decltype(end)> under_way(&stop, end);
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr failure;
  end_teams();  // of what was done here before, such as PyTorch's
  std::thread worker([&] {
    try {
      action(stop);
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_one();
  });
  std::optional<nb::python_error> signal;
  auto heard = std::chrono::steady_clock::time_point::max();
  while (true) {
    {
      const nb::gil_scoped_release released;
      std::unique_lock lock(mutex);
      if (changed.wait_for(lock, kListens, [&] { return done; })) break;
    }
    const auto now = std::chrono::steady_clock::now();
    if (PyErr_CheckSignals() != 0) {
      nb::python_error raised;
      if (signal) continue;
      signal.emplace(std::move(raised));
      stop = true;
      heard = now;
    } else if (signal && now - kLong > heard) {
      PySys_WriteStderr("millrace: Interrupted; stops after what is under way.\n");
      heard = std::chrono::steady_clock::time_point::max();
    }
  }
  without_lock([&] { worker.join(); });
  if (signal) throw std::move(*signal);
  if (failure) std::rethrow_exception(failure);
}

void stop_attended() {
  without_lock([] { attended_here().stop_all(); });
}

api::Run train(const api::Job& job, nb::object on_step, nb::object on_evaluation,
               nb::object on_message) {
  const api::Callbacks callbacks = callbacks_of(on_step, on_evaluation, on_message);
  return attended([&](std::atomic<bool>& stop) { return job.train(callbacks, &stop); });
}

train::EvaluationReport evaluate(api::Model& model, const std::optional<api::DataPart>& data,
                                 const nb::dict& metrics) {
  if (!data) fail_input("There is nothing to evaluate on: no share of the data is held back.");
  std::vector<api::Metric> own;
  for (const auto& [name, function] : metrics) {
    std::string known_as;
    if (!nb::try_cast(name, known_as, false)) fail_input("Metrics have text as names.");
    require_callable(function, fmt::format("The metric '{}'", known_as));
    own.push_back({known_as, [called = nb::handle(function), known_as](
                                 const api::Rows& scores, std::span<const int32_t> labels) {
                     const EndTeams ended;
                     const nb::gil_scoped_acquire gil;
                     const nb::object answer = called(to_numpy(scores), to_numpy(labels));
                     double number = 0;
                     if (!nb::try_cast(answer, number)) {
                       fail_input("The metric '{}' gives no number.", known_as);
                     }
                     return number;
                   }});
  }
  return attended([&](std::atomic<bool>& stop) { return model.evaluate(*data, own, &stop); });
}

}  // namespace millrace::python
