// Image files as a user names them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace millrace::cli {

// Files as they are, the images of directories with what is below them by their names, sorted, and
// for "-" a file a line of standard input. Throws InputError for what does not exist, and if there
// is none.
std::vector<std::filesystem::path> list_images(const std::vector<std::string>& arguments);

}  // namespace millrace::cli
