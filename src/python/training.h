// Long work for Python: without the interpreter's lock, and with an ear for Ctrl-C.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <functional>
#include <optional>

#include "api/job.h"

namespace millrace::python {

// Calls without the interpreter's lock.
template <typename Action>
auto without_lock(Action&& action) {
  const nanobind::gil_scoped_release released;
  return action();
}

// Runs an action on a thread of its own while this one waits, without the lock, and listens for
// signals. The first one sets `stop`; when the action has ended, what the signal raised is raised
// here, or else what the action threw. An action that goes on for long after a signal is told of on
// standard error.
void attend(const std::function<void(std::atomic<bool>& stop)>& action);

// Stops all that is attended to, and waits for it; what is begun later stops at once.
void stop_attended();

template <typename Action>
auto attended(Action&& action) {
  std::optional<decltype(action(std::declval<std::atomic<bool>&>()))> result;
  attend([&](std::atomic<bool>& stop) { result.emplace(action(stop)); });
  return std::move(*result);
}

api::Run train(const api::Job& job, nanobind::object on_step, nanobind::object on_evaluation,
               nanobind::object on_message);

// Figures over all of the data; `metrics` are functions of scores and labels by name. Throws
// InputError if there is no data.
train::EvaluationReport evaluate(api::Model& model, const std::optional<api::DataPart>& data,
                                 const nanobind::dict& metrics);

}  // namespace millrace::python
