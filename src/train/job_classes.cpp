#include "train/job_classes.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "data/formats/recordio.h"
#include "data/record_source.h"

namespace millrace::train {
namespace {

bool is_there(const std::string& source) {
  const std::vector<std::filesystem::path> files =
      data::recordio_files(std::string_view(source).substr(source.find(':') + 1));
  return std::all_of(files.begin(), files.end(), [](const std::filesystem::path& file) {
    return std::filesystem::exists(file);
  });
}

// A folder numbers its classes from 0 on whatever others do. Data that is missing, perhaps for one
// process of the job alone, has none: when it is opened, all of them are told.
data::DataClasses counted_classes(const RunSettings& job, const std::string& source,
                                  data::Split split) {
  if (!is_there(source)) return {};
  data::DataClasses classes = data::classes_of(source, split);
  if (!classes.names.empty() && job.data.label_offset != 0) {
    fail_input("‹label_offset› is {}, but '{}' numbers its classes from 0; leave it out.",
               job.data.label_offset, source);
  }
  if (classes.count > 0) classes.count -= job.data.label_offset;
  return classes;
}

void require_room(const StepSettings& job, const std::string& source,
                  const data::DataClasses& classes) {
  if (classes.count <= job.options.classes) return;
  fail_input("‹classes› is {}, but '{}' has {} classes.", job.options.classes, source,
             classes.count);
}

// Said by every process before the first of them reads.
void require_labels_at_once(const RunSettings& job) {
  if (!is_there(job.data.source)) return;
  const auto source = data::open_source(job.data.source, data::Split::train, job.class_names);
  if (source->count() == 0 || source->label(0)) return;
  fail_input(
      "‹sampler› balanced needs data that tells its labels at once (folder, idx or raw), not '{}'.",
      job.data.source);
}

// Perhaps the directories of classes are one level further down.
[[noreturn]] void fail_one_class(const RunSettings& job, const std::string& name) {
  const std::string inner = job.data.source + "/" + name;
  const bool nested = data::classes_of(inner, data::Split::train).count > 1;
  fail_input("'{}' has one class, '{}', which leaves nothing to learn; {}", job.data.source, name,
             nested ? fmt::format("did you mean '{}'?", inner)
                    : "give each class a directory of its own.");
}

}  // namespace

void follow_training_data(TrainJob& job, bool given) {
  if (job.data.source == "synthetic") return;
  data::DataClasses classes = counted_classes(job, job.data.source, data::Split::train);
  if (!given && classes.count > 0) job.options.classes = classes.count;
  job.classes_assumed = !given && classes.count == 0;
  require_room(job, job.data.source, classes);
  if (classes.names.size() == 1) fail_one_class(job, classes.names.front());
  job.class_names = std::move(classes.names);
  if (job.data.balanced) require_labels_at_once(job);
}

void follow_evaluation_data(TrainJob& job, bool given) {
  if (job.evaluation_data.empty() || job.evaluation_data == "synthetic") return;
  const data::DataClasses classes = counted_classes(job, job.evaluation_data, data::Split::test);
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

}  // namespace millrace::train
