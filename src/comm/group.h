// The members of a collective, behind one type whatever joins them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include "comm/transport.h"

namespace millrace::comm {

// What one member did with one kind of operation. Bytes are those this member handed to others.
struct OperationStatistics {
  int64_t calls = 0;
  int64_t bytes = 0;
  double seconds_waited = 0;
};

struct GroupStatistics {
  std::array<OperationStatistics, kOperations> operations;
  const OperationStatistics& of(Operation operation) const;
  OperationStatistics total() const;
};

// How floats travel between members.
enum class Wire : uint8_t { full, f16, bf16 };

// A member's handle of its group. Copies share one implementation, which lives as long as a copy.
//
// Every member calls the same collectives with the same counts in the same order, each from its
// own thread; one thread of a member at a time. Different groups are independent, so a member may
// use each from a thread of its own. Buffers must stay alive and untouched until the call returns.
// Results do not depend on timing: sums are taken in the order of the members, and every member
// gets the same bits.
//
// Point to point: `send` may wait for its `receive`, messages between two members with one tag
// arrive in order, and both ends give the same number of bytes. Tags run from 0 to kLargestTag.
// Any number of threads of a member may send and receive at the same time, also beside a
// collective, as long as each (other member, direction, tag) is used by one thread at a time.
//
// When a member calls `fail`, pending and later calls of all members throw JobError with its name
// and the reason. A group that has failed stays so.
class Group {
 public:
  static constexpr int kLargestTag = 16383;

  explicit Group(std::unique_ptr<Transport> transport);

  int size() const;
  int rank() const;
  // How messages call a member, for example "rank 1 on host b".
  std::string name(int member) const;

  // Memory that this member's end of the group holds for transfers.
  int64_t buffer_bytes() const;

  // The part of `count` elements that a member holds after reduce_scatter and before all_gather,
  // in whole blocks of `block` elements.
  int64_t part_begin(int64_t count, int member, int64_t block = 1) const;
  int64_t part_size(int64_t count, int member, int64_t block = 1) const;

  // Replaces data by the sum over all members.
  template <typename T>
  void all_reduce(std::span<T> data) {
    all_reduce(data.data(), count_of(data), element_type<T>());
  }

  // Sums `whole` over the members and leaves this member's part of it in `part`, which may be the
  // same part of `whole`; the rest of `whole` keeps its values. Parts are whole blocks: the count
  // is a multiple of `block`.
  template <typename T>
  void reduce_scatter(std::span<const T> whole, std::span<T> part, int64_t block = 1) {
    reduce_scatter(whole.data(), part.data(), count_of(whole), count_of(part), block,
                   element_type<T>());
  }

  // The same for floats on a narrower wire. Every term is rounded to 16 bits, the terms are added
  // in float32, and the sum is rounded once more: what too large a sum leaves is an infinity.
  void all_reduce(std::span<float> data, Wire wire) {
    all_reduce(data.data(), count_of(data), element_type(wire));
  }
  void reduce_scatter(std::span<const float> whole, std::span<float> part, int64_t block,
                      Wire wire) {
    reduce_scatter(whole.data(), part.data(), count_of(whole), count_of(part), block,
                   element_type(wire));
  }

  // Collects every member's part into `whole` on all of them; `part` may be its place in `whole`.
  template <typename T>
  void all_gather(std::span<const T> part, std::span<T> whole) {
    static_assert(std::is_trivially_copyable_v<T>);
    all_gather(part.data(), whole.data(), count_of(part), count_of(whole), sizeof(T));
  }

  // The same for blocks of `block_bytes` bytes of any type.
  void all_gather(std::span<const std::byte> part, std::span<std::byte> whole, int64_t block_bytes);

  // Copies the root's data to all members.
  template <typename T>
  void broadcast(std::span<T> data, int root) {
    static_assert(std::is_trivially_copyable_v<T>);
    broadcast(data.data(), static_cast<int64_t>(data.size_bytes()), root);
  }

  // Returns once every member has called it.
  void barrier();

  template <typename T>
  void send(int to, std::span<const T> data, int tag) {
    static_assert(std::is_trivially_copyable_v<T>);
    send(to, data.data(), static_cast<int64_t>(data.size_bytes()), tag);
  }

  template <typename T>
  void receive(int from, std::span<T> data, int tag) {
    static_assert(std::is_trivially_copyable_v<T>);
    receive(from, data.data(), static_cast<int64_t>(data.size_bytes()), tag);
  }

  // Tells all members that this one cannot go on. Never throws or waits; from any thread.
  void fail(const std::string& reason) noexcept;

  // Ends the group with this very sentence, for a failure that is not this member's own.
  void stop(const std::string& sentence) noexcept;

  // How long this member's calls wait before the group fails, naming who is missing; 0: no limit.
  void set_deadline(double seconds);

  GroupStatistics statistics() const;

 private:
  struct State;

  template <typename T>
  static int64_t count_of(std::span<T> data) {
    return static_cast<int64_t>(data.size());
  }

  template <typename T>
  static constexpr ElementType element_type() {
    if constexpr (std::is_same_v<T, float>) {
      return ElementType::float32;
    } else if constexpr (std::is_same_v<T, double>) {
      return ElementType::float64;
    } else {
      static_assert(std::is_same_v<T, int32_t>, "sums take float, double or int32_t");
      return ElementType::int32;
    }
  }

  static constexpr ElementType element_type(Wire wire) {
    if (wire == Wire::full) return ElementType::float32;
    return wire == Wire::f16 ? ElementType::float32_as_f16 : ElementType::float32_as_bf16;
  }

  void all_reduce(void* data, int64_t count, ElementType type);
  void reduce_scatter(const void* whole, void* part, int64_t count, int64_t part_count,
                      int64_t block, ElementType type);
  void all_gather(const void* part, void* whole, int64_t part_count, int64_t count,
                  int64_t item_bytes);
  void broadcast(void* data, int64_t bytes, int root);
  void send(int to, const void* data, int64_t bytes, int tag);
  void receive(int from, void* data, int64_t bytes, int tag);
  void check_part(Operation operation, int64_t count, int64_t part_count, int64_t block) const;
  void check_peer(Operation operation, int member) const;
  void check_message(Operation operation, int member, int tag) const;

  std::shared_ptr<State> state_;
};

}  // namespace millrace::comm
