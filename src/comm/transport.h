// What a way of joining members must do; `Group` is the front that everyone else uses.
#pragma once

#include <cstdint>
#include <string>

#include "base/parts.h"

namespace millrace::comm {

// Elements that can be summed. The last two lie in memory as float32 and travel in 16 bits: every
// term is rounded once, the terms are added in float32, and the sum is rounded once.
enum class ElementType : uint8_t { float32, float64, int32, float32_as_f16, float32_as_bf16 };
int64_t element_bytes(ElementType type);     // in memory
int64_t travelling_bytes(ElementType type);  // between members

enum class Operation : uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  barrier,
  send,
  receive,
};
inline constexpr int kOperations = 7;
const char* operation_name(Operation operation);

// One member's end of a group. Each operation returns the seconds it spent waiting for others and
// throws JobError when the group has failed. Collectives come from one thread at a time; sends,
// receives and `stop` may come from any number of other threads at the same time, as long as one
// thread at a time sends, and one receives, between two members with one tag.
//
// Sums are taken in the order of the members, whatever the timing. `part` may lie at its own place
// inside the whole buffer, and nowhere else inside it.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int size() const = 0;
  virtual int rank() const = 0;
  virtual std::string name(int member) const = 0;

  // Memory held for transfers, from the start to the end.
  virtual int64_t buffer_bytes() const = 0;

  virtual double all_reduce(void* data, int64_t count, ElementType type) = 0;
  // Parts are whole blocks of `block` elements; the count is a multiple of it. Elements that travel
  // in 16 bits leave rounded sums here too, the same as all_reduce does.
  virtual double reduce_scatter(const void* whole, void* part, int64_t count, int64_t block,
                                ElementType type) = 0;
  virtual double all_gather(const void* part, void* whole, int64_t count, int64_t item_bytes) = 0;
  virtual double broadcast(void* data, int64_t bytes, int root) = 0;
  virtual double barrier() = 0;
  virtual double send(int to, const void* data, int64_t bytes, int tag) = 0;
  virtual double receive(int from, void* data, int64_t bytes, int tag) = 0;

  // Ends the group with this sentence, unless it has failed before.
  virtual void stop(const std::string& sentence) = 0;
  // Zero means to wait without end.
  virtual void set_deadline(double seconds) = 0;
};

}  // namespace millrace::comm
