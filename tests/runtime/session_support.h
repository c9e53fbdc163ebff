// Helpers of the tests that drive a session by hand.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/models.h"
#include "runtime/session.h"

namespace millrace::runtime {

// A network of the catalogue with ten classes.
inline graph::Graph small_model(const std::string& name, int64_t batch, int64_t image) {
  models::ModelOptions options = models::default_options(name);
  options.batch = batch;
  options.image = image;
  options.classes = 10;
  return models::build_model(name, options);
}

// The values of a state tensor; fails the test if there is none of that name.
inline std::vector<float> state_of(const Session& session, const std::string& name) {
  for (const compile::Slot& slot : session.state()) {
    if (slot.name != name) continue;
    std::vector<float> values(static_cast<size_t>(slot.type.elements()));
    session.read_state(slot, values);
    return values;
  }
  ADD_FAILURE() << "no state " << name;
  return {};
}

}  // namespace millrace::runtime
