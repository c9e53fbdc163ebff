// Tables of comma-separated values among the embedded files.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::planner {

// Fields of a line; quotes protect commas.
std::vector<std::string> split_fields(std::string_view line);

// The records of an embedded file, each by the names of its header. Throws std::logic_error for a
// damaged one.
using TableRecord = std::map<std::string, std::string>;
std::vector<TableRecord> embedded_table(std::string_view name);

}  // namespace millrace::planner
