// Who may touch which memory when: what must hold in every order, without trying any.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "backend/command.h"

namespace millrace::backend {

// Is told of commands when they are given, and of what waits for what. Two commands that touch the
// same bytes, one of which writes them, must be ordered by their stream, by events, or by the host,
// which has waited for the first before it gives the second; what other devices do in between does
// not count. A kernel must find in a buffer what was written to that buffer, and not what lies in
// another one that shares its memory; its own operands may lie in the same place only if they are
// of one buffer.
//
// Not safe by itself. Forgets what the host has waited for.
class StrictLedger {
 public:
  // The `number`th command of a stream, from 1. What is wrong with it, as a sentence, or "".
  std::string give(uint64_t stream, int64_t number, const Command& command);
  // What follows in the stream from command `number` on runs after the `event`th of another one.
  void await(uint64_t stream, int64_t number, uint64_t other, int64_t event);
  // The host has waited until that command was over.
  void wait(uint64_t stream, int64_t number);
  // The memory is free.
  void forget(DeviceAddress begin, int64_t bytes);

 private:
  // The last command known to be over, by stream.
  using Clock = std::vector<int64_t>;
  // What a stream's commands know from `from` on.
  struct Moment {
    int64_t from = 0;
    Clock known;
  };
  struct Access {
    uint64_t stream = 0;
    int64_t number = 0;  // 0: nobody
    std::string_view name;
  };
  // Bytes up to `end` that were always touched together.
  struct Cell {
    DeviceAddress end;
    Access writer;
    int buffer = kernels::Extent::kAnyone;
    std::vector<Access> readers;  // since then
  };
  using Cells = std::map<DeviceAddress, Cell>;  // by their begin
  struct Use {
    DeviceAddress begin;
    int64_t bytes = 0;
    int buffer = kernels::Extent::kAnyone;
    bool written = false;
    bool keeps_buffer = false;  // what is written is still of the buffer that it was of
  };

  static std::vector<Use> uses_of(const Command& command);
  static std::string conflict_within(const std::vector<Use>& uses, std::string_view name);
  void refresh(uint64_t stream, int64_t number);
  Clock& known_from(uint64_t stream, int64_t number);
  bool is_over(const Access& access, uint64_t stream) const;
  std::string read(const Use& use, const Access& access);
  std::string write(const Use& use, const Access& access);
  void split(DeviceAddress place);
  std::string_view keep(std::string_view name);

  std::map<uint64_t, std::deque<Moment>> moments_;  // by stream, oldest first
  Clock host_;
  Cells cells_;
  std::set<std::string, std::less<>> names_;
};

}  // namespace millrace::backend
