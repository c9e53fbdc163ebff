// All that a device exchanges with the devices of other stages, for one stage.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "kernels/row_copy.h"
#include "parallel/channels.h"
#include "runtime/lane.h"
#include "runtime/session.h"
#include "runtime/wait_meter.h"

namespace millrace {

struct StageLaneOptions {
  int stage = 0;
  int member = 0;
  RouteRequest request;            // what the routes were made from
  std::vector<RouteEnd> ends;      // of this member; their channel_bytes were compiled in
  Group messages;                  // this device's handle in the job's group for messages
  Loopbacks* loopbacks = nullptr;  // only for stages that share a device
  TraceRecorder* trace = nullptr;
  int trace_device = 0;
};

// Owns the lanes, whose buffers lie in the session's channel area. Used by the device's thread
// alone, but for `expect`, which comes before it. What it copies is enqueued on the session's
// stream, in order with the transfers.
class StageLanes {
 public:
  // `evaluation` may be null. Throws std::logic_error where a program's slots do not hold the rows
  // that the routes say.
  StageLanes(const StageLaneOptions& options, Session& session, const Program& training,
             const Program* evaluation, Bell& bell);

  // Lets so many micro-batches of the job come; without gradients in evaluation.
  void expect(int64_t micro_batches, bool gradients);

  bool can_receive(bool gradients, int64_t micro_batch) const;
  bool can_send(bool gradients, int64_t micro_batch) const;

  // Waits for what other stages send for this micro-batch and copies it into slot `copy`.
  void receive(const Program& program, bool gradients, int64_t micro_batch, int copy,
               WaitMeter& waits);
  // Copies what other stages want out of slot `copy`, and sends it.
  void send(const Program& program, bool gradients, int64_t micro_batch, int copy,
            WaitMeter& waits);
  // Waits until all that was sent has been taken.
  void drain(WaitMeter& waits);

  // Whether an input slot is written by `receive`.
  bool receives(std::string_view input) const;

 private:
  // A slot and how rows of it are moved, for one program.
  struct Move {
    const Slot* slot;
    std::unique_ptr<Kernel> copy;
  };
  struct End {
    Route route;
    std::string slot_name;
    std::unique_ptr<SendLane> sends;
    std::unique_ptr<ReceiveLane> receives;
    std::vector<std::optional<Move>> moves;  // training, evaluation
  };

  std::string slot_name(const Route& route, bool sends) const;
  std::optional<Move> move(const Program& program, const RouteEnd& end) const;
  bool matters(const End& end, bool gradients, int64_t micro_batch) const;
  Move& move_of(End& end, const Program& program);
  void move_rows(const Move& move, DeviceAddress from, DeviceAddress to);

  const StageLaneOptions options_;
  Session& session_;
  const Program& training_;
  const DeviceAddress scratch_;  // for a row that is converted
  std::vector<End> ends_;
};

}  // namespace millrace
