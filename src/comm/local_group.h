// Groups whose members are threads of this process.
#pragma once

#include <string>
#include <vector>

#include "comm/group.h"

namespace millrace::comm {

// One handle per member, in the order of the members. A member reads and writes the buffers of the
// others directly, each its own part of the work, between the moment all have come and the moment
// all are done: nothing is copied on the way. Work inside a member uses its thread's team.
//
// Once all have come a collective runs to its end, even if `fail` is called meanwhile, so no
// member leaves while another still uses its buffers. Differing calls fail the whole group.
//
// `names` are used in messages, for example "device 0:1"; without them members are "member 1".
std::vector<Group> make_local_groups(int members, std::vector<std::string> names = {});

}  // namespace millrace::comm
