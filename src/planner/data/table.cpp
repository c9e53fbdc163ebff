#include "planner/data/table.h"

#include <stdexcept>

#include "base/text.h"
#include "planner/data/embedded.h"

namespace millrace::planner {

std::vector<std::string> split_fields(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else if (c != '\r') {
      fields.back().push_back(c);
    }
  }
  return fields;
}

std::vector<TableRecord> embedded_table(std::string_view name) {
  std::vector<TableRecord> records;
  std::vector<std::string> header;
  for (const std::string& line : split(embedded_file(name), '\n')) {
    if (line.empty()) continue;
    const std::vector<std::string> fields = split_fields(line);
    if (header.empty()) {
      header = fields;
      continue;
    }
    if (fields.size() != header.size()) throw std::logic_error("damaged table");
    TableRecord& record = records.emplace_back();
    for (size_t i = 0; i < header.size(); ++i) record[header[i]] = fields[i];
  }
  return records;
}

}  // namespace millrace::planner
