// Writes the input of the simulator, item by item.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "planner/simulate/simulator.h"

namespace millrace::planner {

// Owns the input until it is taken. Items are known by their number; -1 is none.
class ItemList {
 public:
  SimulationInput& input() { return input_; }

  // The lane of this name on a device, made when it is first asked for.
  int lane_of(int device, const char* name, bool ordered);

  int add(std::string name, const char* category, int lane, double seconds);
  SimulationItem& item(int id) { return input_.items[static_cast<size_t>(id)]; }

  // `id` starts when `before` has ended.
  void follow(int id, int before) {
    if (id >= 0 && before >= 0) item(id).after.push_back(before);
  }

 private:
  SimulationInput input_;
  std::map<std::pair<int, std::string>, int> lanes_;
};

}  // namespace millrace::planner
