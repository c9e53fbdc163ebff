// The data files of src/planner/data, as part of the program.
#pragma once

#include <string_view>

namespace millrace::planner {

// The text of a file by its name; lives as long as the program. Throws std::logic_error for a name
// that was not embedded.
std::string_view embedded_file(std::string_view name);

}  // namespace millrace::planner
