// How centres that a step leaves out keep up with an optimizer that sees all of them.
#pragma once

#include <optional>

#include "graph/margin_head.h"
#include "kernels/head/centre_block.h"
#include "kernels/kernel.h"
#include "kernels/support/update_rules.h"

namespace millrace::kernels {

// The clock of a head (graph/margin_head.h says how it lies). Borrows its memory. A row is written
// by one thread.
class RowClock {
 public:
  RowClock() = default;
  RowClock(float* rates, int32_t* current) : rates_(rates), current_(current) {}

  // Updates so far.
  int64_t now() const { return static_cast<int64_t>(rates_[0]); }
  // Those that the optimizer had made before one of them.
  int64_t updates_before(int64_t update) const { return static_cast<int64_t>(rates_[1]) + update; }
  // The learning rate of an update, one of the last kHeadHistory.
  float rate(int64_t update) const;
  void record(float rate, int64_t updates_before) const;

  // Updates that a row has missed, as far as they matter.
  int64_t missed(int64_t row) const;
  // Asks for what `missed` needs.
  void prefetch(int64_t row) const { __builtin_prefetch(current_ + row); }
  void set_current(int64_t row, int64_t update) const {
    current_[row] = static_cast<int32_t>(update);
  }

 private:
  static constexpr int64_t kRates = 2;

  float* rates_ = nullptr;
  int32_t* current_ = nullptr;
};

// A head's centres, states and clock in one run of an operator. Borrows everything.
class LateRows {
 public:
  LateRows(const UpdateRule& rule, graph::DataType storage, int64_t dimension)
      : rule_(rule), storage_(storage), dimension_(dimension) {}

  // Nothing unless the operator is lazy. Input `centres` are the centres; their states come
  // `between` inputs later.
  static std::optional<LateRows> of(const KernelRequest& request, size_t centres,
                                    size_t between = 0);

  // Bytes of workspace that `begin` needs until the rows are no longer used.
  static uint64_t workspace_bytes() { return (graph::kHeadHistory + 1) * sizeof(Pause); }

  LateRows begin(const RowClock& clock, std::byte* workspace) const;
  // For one run of the operator.
  LateRows begin(const KernelArguments& a, std::byte* workspace) const;

  const RowClock& clock() const { return clock_; }

  // Brings a row of centres in float32 up to date, without changing what is stored; `scratch` has
  // room for two rows.
  void catch_up(int64_t row, float* centre, float* scratch) const;

  // The same for a row and its states.
  void catch_up(int64_t row, float* centre, float* const* states) const;

  // Asks for the states of a row that is brought up to date soon.
  void prefetch(int64_t row) const;

 private:
  UpdateRule rule_;
  size_t states_input_ = 0;
  graph::DataType storage_ = graph::DataType::f32;
  int64_t dimension_ = 0;
  CentreRows states_[2];
  RowClock clock_;
  const Pause* pauses_ = nullptr;  // by the number of updates missed
};

}  // namespace millrace::kernels
