// Work in a process of its own, so that what it leaves in memory is gone afterwards.
#pragma once

#include <functional>
#include <string>

namespace millrace::cli {

// Runs `work` in a child of this process, which must not have started threads yet, and returns its
// text. InputError and JobError of the child are thrown here.
std::string in_child(const std::function<std::string()>& work);

}  // namespace millrace::cli
