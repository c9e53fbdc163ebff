#include "planner/simulate/item_list.h"

namespace millrace::planner {

int ItemList::lane_of(int device, const char* name, bool ordered) {
  const auto [found, added] =
      lanes_.try_emplace({device, name}, static_cast<int>(input_.lanes.size()));
  if (added) input_.lanes.push_back({device, name, ordered});
  return found->second;
}

int ItemList::add(std::string name, const char* category, int lane, double seconds) {
  SimulationItem item;
  item.name = std::move(name);
  item.category = category;
  item.lane = lane;
  item.seconds = seconds;
  input_.items.push_back(std::move(item));
  return static_cast<int>(input_.items.size()) - 1;
}

}  // namespace millrace::planner
