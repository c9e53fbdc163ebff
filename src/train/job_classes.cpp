#include "train/job_classes.h"

#include "base/error.h"
#include "data/record_source.h"

namespace millrace {
namespace {

// A folder numbers its classes from 0 on whatever others do.
DataClasses counted_classes(const TrainJob& job, const std::string& source, Split split) {
  DataClasses classes = classes_of(source, split);
  if (!classes.names.empty() && job.data.label_offset != 0) {
    fail_input("--label-offset is {}, but '{}' numbers its classes from 0; leave it out.",
               job.data.label_offset, source);
  }
  if (classes.count > 0) classes.count -= job.data.label_offset;
  return classes;
}

void require_room(const TrainJob& job, const std::string& source, const DataClasses& classes) {
  if (classes.count <= job.options.classes) return;
  fail_input("--classes is {}, but '{}' has {} classes.", job.options.classes, source,
             classes.count);
}

}  // namespace

void follow_training_data(TrainJob& job, bool given) {
  if (job.data.source == "synthetic") return;
  DataClasses classes = counted_classes(job, job.data.source, Split::train);
  if (!given && classes.count > 0) job.options.classes = classes.count;
  job.classes_assumed = !given && classes.count == 0;
  require_room(job, job.data.source, classes);
  job.class_names = std::move(classes.names);
}

void follow_evaluation_data(TrainJob& job, bool given) {
  if (job.evaluation_data.empty() || job.evaluation_data == "synthetic") return;
  const DataClasses classes = counted_classes(job, job.evaluation_data, Split::test);
  const bool matched_by_name = !classes.names.empty() && !job.class_names.empty();
  if (matched_by_name) return;  // when the data is opened
  if (!given && classes.count > 0) job.options.classes = classes.count;
  require_room(job, job.evaluation_data, classes);
  if (!classes.names.empty() && classes.count != job.options.classes) {
    fail_input(
        "'{}' has {} classes and the network {}, and the network has no names to match them by; "
        "give each class a folder, or train from a folder.",
        job.evaluation_data, classes.count, job.options.classes);
  }
}

}  // namespace millrace
