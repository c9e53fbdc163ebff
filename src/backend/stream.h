// Commands for a device, in order.
#pragma once

#include "backend/command.h"

namespace millrace::backend {

// What a command is about, for whoever observes a stream; the stream does not look at it.
struct CommandNote {
  const void* subject = nullptr;
  int64_t micro_batch = -1;
};

// Is told when each command that has a subject ran, in nanoseconds of the steady clock, by the
// thread that ran it. Neither waits nor throws.
class StreamObserver {
 public:
  virtual void ran(const CommandNote& note, int64_t begin, int64_t end) = 0;

 protected:
  ~StreamObserver() = default;
};

// Commands run one after the other, some time after they were given; commands of different streams
// run in any order that their events allow. Any thread may give commands, one at a time.
//
// When a command fails, those behind it are not run but for bells, and whoever waits for an event
// behind it gets its exception. What is given after that was told runs again.
//
// A stream that ends first runs what it was given.
class Stream {
 public:
  virtual ~Stream() = default;
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  virtual void give(const Command& command, const CommandNote& note = {}) = 0;
  // The moment at which all commands given so far have run.
  virtual Event record() = 0;

  // Lets what follows run after the event; nothing is given if it is over already.
  virtual void await(const Event& event) = 0;

  // Waits in the calling thread until everything has run.
  void finish() { record().wait(); }

  // Seconds spent at commands that communicate.
  virtual double seconds_communicating() const = 0;

  // Before anything is given; borrowed, null: nobody.
  virtual void set_observer(StreamObserver* observer) = 0;
};

}  // namespace millrace::backend
