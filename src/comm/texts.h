// Short texts between the members of a group.
#pragma once

#include <string>
#include <vector>

#include "comm/group.h"

namespace millrace::comm {

// The text of every member, in their order. Called by all members.
std::vector<std::string> gather_texts(Group& group, const std::string& own);

// The text of every member, in their order, on the root; others get nothing. Texts may be of any
// length. Called by all members.
std::vector<std::string> collect_texts(Group& group, const std::string& own, int root);

// The root's text on every member. Called by all members.
std::string broadcast_text(Group& group, const std::string& text, int root);

}  // namespace millrace::comm
