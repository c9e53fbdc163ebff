// Says on standard error what a command without progress is doing.
#pragma once

#include "train/observer.h"

namespace millrace::cli {

// On a terminal one line, written again for each activity and gone at the end; elsewhere a plain
// line for each. Warnings stay, and notes are left to those who show results.
class ActivityLine : public train::TrainingObserver {
 public:
  ActivityLine();
  ~ActivityLine() override { clear(); }

  void clear();

  void on_activity(std::string_view what) override;
  void on_message(train::Severity severity, std::string_view sentence) override;

 private:
  bool terminal_;
  bool live_ = false;
};

}  // namespace millrace::cli
