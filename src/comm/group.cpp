#include "comm/group.h"

#include <fmt/format.h>

#include <mutex>
#include <utility>

#include "base/error.h"
#include "comm/narrowing.h"

namespace millrace::comm {

int64_t element_bytes(ElementType type) { return type == ElementType::float64 ? 8 : 4; }

int64_t travelling_bytes(ElementType type) {
  return element_bytes(type) / (is_narrowed(type) ? 2 : 1);
}

const char* operation_name(Operation operation) {
  constexpr std::array<const char*, kOperations> kNames = {
      "all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier", "send", "receive"};
  return kNames[static_cast<size_t>(operation)];
}

const OperationStatistics& GroupStatistics::of(Operation operation) const {
  return operations[static_cast<size_t>(operation)];
}

OperationStatistics GroupStatistics::total() const {
  OperationStatistics sum;
  for (const OperationStatistics& one : operations) {
    sum.calls += one.calls;
    sum.bytes += one.bytes;
    sum.seconds_waited += one.seconds_waited;
  }
  return sum;
}

struct Group::State {
  explicit State(std::unique_ptr<Transport> given) : transport(std::move(given)) {}

  void record(Operation operation, int64_t bytes, double seconds) {
    const std::lock_guard lock(mutex);
    OperationStatistics& entry = statistics.operations[static_cast<size_t>(operation)];
    entry.calls += 1;
    entry.bytes += bytes;
    entry.seconds_waited += seconds;
  }

  std::unique_ptr<Transport> transport;
  std::mutex mutex;
  GroupStatistics statistics;
};

Group::Group(std::unique_ptr<Transport> transport)
    : state_(std::make_shared<State>(std::move(transport))) {}

int Group::size() const { return state_->transport->size(); }
int Group::rank() const { return state_->transport->rank(); }
std::string Group::name(int member) const { return state_->transport->name(member); }

int64_t Group::buffer_bytes() const { return state_->transport->buffer_bytes(); }

int64_t Group::part_begin(int64_t count, int member, int64_t block) const {
  return millrace::part_begin(count / block, member, size()) * block;
}

int64_t Group::part_size(int64_t count, int member, int64_t block) const {
  return part_begin(count, member + 1, block) - part_begin(count, member, block);
}

void Group::all_reduce(void* data, int64_t count, ElementType type) {
  const double seconds = state_->transport->all_reduce(data, count, type);
  const int64_t own = part_size(count, rank());
  state_->record(Operation::all_reduce, (count - own + own * (size() - 1)) * travelling_bytes(type),
                 seconds);
}

void Group::reduce_scatter(const void* whole, void* part, int64_t count, int64_t part_count,
                           int64_t block, ElementType type) {
  check_part(Operation::reduce_scatter, count, part_count, block);
  const double seconds = state_->transport->reduce_scatter(whole, part, count, block, type);
  state_->record(Operation::reduce_scatter, (count - part_count) * travelling_bytes(type), seconds);
}

void Group::all_gather(const void* part, void* whole, int64_t part_count, int64_t count,
                       int64_t item_bytes) {
  check_part(Operation::all_gather, count, part_count, 1);
  const double seconds = state_->transport->all_gather(part, whole, count, item_bytes);
  state_->record(Operation::all_gather, part_count * item_bytes * (size() - 1), seconds);
}

void Group::all_gather(std::span<const std::byte> part, std::span<std::byte> whole,
                       int64_t block_bytes) {
  check_part(Operation::all_gather, count_of(whole), count_of(part), block_bytes);
  all_gather(part.data(), whole.data(), count_of(part) / block_bytes, count_of(whole) / block_bytes,
             block_bytes);
}

void Group::broadcast(void* data, int64_t bytes, int root) {
  check_peer(Operation::broadcast, root);
  const double seconds = state_->transport->broadcast(data, bytes, root);
  state_->record(Operation::broadcast, root == rank() ? bytes * (size() - 1) : 0, seconds);
}

void Group::barrier() { state_->record(Operation::barrier, 0, state_->transport->barrier()); }

void Group::send(int to, const void* data, int64_t bytes, int tag) {
  check_message(Operation::send, to, tag);
  state_->record(Operation::send, bytes, state_->transport->send(to, data, bytes, tag));
}

void Group::receive(int from, void* data, int64_t bytes, int tag) {
  check_message(Operation::receive, from, tag);
  state_->record(Operation::receive, 0, state_->transport->receive(from, data, bytes, tag));
}

void Group::fail(const std::string& reason) noexcept {
  state_->transport->stop(fmt::format("{} failed: {}", name(rank()), reason));
}

void Group::stop(const std::string& sentence) noexcept { state_->transport->stop(sentence); }

void Group::set_deadline(double seconds) { state_->transport->set_deadline(seconds); }

GroupStatistics Group::statistics() const {
  const std::lock_guard lock(state_->mutex);
  return state_->statistics;
}

void Group::check_part(Operation operation, int64_t count, int64_t part_count,
                       int64_t block) const {
  if (block < 1 || count % block != 0) {
    fail_job("{} gives {} {} elements, which are not whole blocks of {}.", name(rank()),
             operation_name(operation), count, block);
  }
  if (part_count == part_size(count, rank(), block)) return;
  fail_job("{} gives {} a part of {} elements, but its part of {} is {}.", name(rank()),
           operation_name(operation), part_count, count, part_size(count, rank(), block));
}

void Group::check_peer(Operation operation, int member) const {
  if (member >= 0 && member < size()) return;
  fail_job("{} names member {} in {}, but the group has {} members.", name(rank()), member,
           operation_name(operation), size());
}

void Group::check_message(Operation operation, int member, int tag) const {
  check_peer(operation, member);
  if (member == rank()) {
    fail_job("{} names itself as the other end of a {}.", name(rank()), operation_name(operation));
  }
  if (tag < 0 || tag > kLargestTag) {
    fail_job("{} gives {} the tag {}, but tags run from 0 to {}.", name(rank()),
             operation_name(operation), tag, kLargestTag);
  }
}

}  // namespace millrace::comm
