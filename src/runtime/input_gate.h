// Between the thread that feeds a stage and the device that runs it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "backend/event.h"
#include "base/bell.h"
#include "base/error.h"

namespace millrace::runtime {

// Thrown by those that wait for a stage that has failed; the stage itself tells why.
class StageClosed : public JobError {
 public:
  using JobError::JobError;
};

// Micro-batches of a device are numbered from 0 in the order in which it runs them; number i uses
// slot i mod slots. The feeding thread waits for a free slot, writes it, and says so when that is
// over; the device's thread waits for that, and gives the slot back with the event behind which it
// is not read any more. Once closed, all waits throw StageClosed.
class InputGate {
 public:
  explicit InputGate(Bell& bell) : bell_(bell) {}

  // Starts anew at number 0; nobody may be waiting.
  void open(int slots);
  void close();

  // The event behind which the slot may be written.
  backend::Event wait_for_slot(int64_t number);
  void written(int64_t number);
  // Where the device copies what was written: waits until it has.
  void wait_until_taken(int64_t number);

  bool is_written(int64_t number) const;
  void wait_for_input(int64_t number);
  void taken(int64_t number);
  void release(int64_t number, const backend::Event& read);

 private:
  void throw_if_closed() const;

  Bell& bell_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int slots_ = 1;
  std::vector<backend::Event> read_;  // by slot
  int64_t written_ = 0;
  int64_t taken_ = 0;
  int64_t released_ = 0;
  bool closed_ = false;
};

}  // namespace millrace::runtime
