// Which weights a micro-batch reads, and which update takes it in, by the rules of the papers.
//
// Everything is counted from the last moment at which the pipeline was empty.
#pragma once

#include <set>
#include <utility>

#include "parallel/plan.h"

namespace millrace::combinations {

class VersionRule {
 public:
  // The stages of `newest` see every update before they run a micro-batch, as they may where an
  // order is not fixed; the others are as far behind as they may be.
  explicit VersionRule(const parallel::Plan& plan, std::set<int> newest = {})
      : plan_(plan), newest_(std::move(newest)) {}

  // How many updates of the stage its weights have seen that forward and backward of the
  // micro-batch read.
  int64_t version(int stage, int64_t micro_batch) const;

  // The update of the stage that takes in the micro-batch.
  int64_t update(int stage, int64_t micro_batch) const;

  // The replica of the stage that runs the micro-batch whole, 0 where they share it.
  int replica(int stage, int64_t micro_batch) const;

 private:
  bool stale() const;
  int replicas(int stage) const;
  int64_t warm_up(int stage) const;

  parallel::Plan plan_;
  std::set<int> newest_;
};

}  // namespace millrace::combinations
