#include <algorithm>
#include <thread>

#include "base/parallel.h"
#include "comm/local_group.h"
#include "member_runner.h"

namespace millrace::comm {

std::vector<int> member_counts() { return {1, 2, 3, 4, 7}; }

void run_members(int members, int groups, const std::function<void(std::vector<Group>&)>& body) {
  std::vector<std::vector<Group>> handles(static_cast<size_t>(members));
  for (int group = 0; group < groups; ++group) {
    const std::vector<Group> made = make_local_groups(members);
    for (size_t member = 0; member < made.size(); ++member) handles[member].push_back(made[member]);
  }
  std::vector<std::thread> threads;
  for (std::vector<Group>& handle : handles) {
    threads.emplace_back([&body, &handle] {
      set_team_size(std::min(team_size(), handle[0].rank() % 2 + 1));
      body(handle);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace millrace::comm
