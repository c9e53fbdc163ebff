// What `eval --confusion --summary` told: classes, which were taken for which, and wrong pictures.
#pragma once

#include "report/page_section.h"

namespace millrace::report {

// A file of that kind has an object "confusion" with an array "matrix".
bool is_evaluation(const Json& root);

// One row a class, and one for each of the pairs that were mixed up most. Take any JSON.
Table class_table(const Json& root);
Table confusion_pairs(const Json& root);

void add_evaluation_section(const RunFile& file, size_t most_pictures, PageParts& page);

}  // namespace millrace::report
