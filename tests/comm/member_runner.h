// How the shared suite gets its members: each test program links one implementation.
#pragma once

#include <functional>
#include <vector>

#include "comm/group.h"

namespace millrace::comm {

// The sizes of group that this program can make.
std::vector<int> member_counts();

// Runs body once for each member, at the same time, each with `groups` fresh groups of `members`
// members, and returns when all members here have ended.
void run_members(int members, int groups,
                 const std::function<void(std::vector<Group>& groups)>& body);

}  // namespace millrace::comm
