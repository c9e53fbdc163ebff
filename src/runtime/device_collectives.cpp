#include "runtime/device_collectives.h"

#include <chrono>
#include <stdexcept>

#include "base/parallel.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Wire wire_of(DataType type) {
  switch (type) {
    case DataType::f32:
      return Wire::full;
    case DataType::f16:
      return Wire::f16;
    case DataType::bf16:
      return Wire::bf16;
    default:
      throw std::logic_error("sums do not travel as integers");
  }
}

}  // namespace

// What posted work sees: the group of the background, and no background of its own.
class DeviceCollectives::Inner : public Collectives {
 public:
  explicit Inner(Group& group) : group_(group) {}
  int members() const override { return group_.size(); }
  int member() const override { return group_.rank(); }
  void all_reduce(std::span<float> values) override { group_.all_reduce(values); }
  void reduce_scatter(std::span<const float> whole, std::span<float> part, int64_t block) override {
    group_.reduce_scatter(whole, part, block);
  }
  void all_reduce(std::span<float> values, DataType wire) override {
    group_.all_reduce(values, wire_of(wire));
  }
  void reduce_scatter(std::span<const float> whole, std::span<float> part, int64_t block,
                      DataType wire) override {
    group_.reduce_scatter(whole, part, block, wire_of(wire));
  }
  void all_gather(std::span<const std::byte> part, std::span<std::byte> whole,
                  int64_t block_bytes) override {
    group_.all_gather(part, whole, block_bytes);
  }
  void post(int, BackgroundWork&) override { throw std::logic_error("posted work cannot post"); }
  void wait(int) override { throw std::logic_error("posted work cannot wait"); }

 private:
  Group& group_;
};

DeviceCollectives::DeviceCollectives(Group direct, Group background)
    : direct_(std::move(direct)),
      background_(std::move(background)),
      thread_([this] { serve(); }) {}

DeviceCollectives::~DeviceCollectives() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

int DeviceCollectives::members() const { return direct_.size(); }
int DeviceCollectives::member() const { return direct_.rank(); }
void DeviceCollectives::all_reduce(std::span<float> values) { direct_.all_reduce(values); }

void DeviceCollectives::reduce_scatter(std::span<const float> whole, std::span<float> part,
                                       int64_t block) {
  direct_.reduce_scatter(whole, part, block);
}

void DeviceCollectives::all_reduce(std::span<float> values, DataType wire) {
  direct_.all_reduce(values, wire_of(wire));
}

void DeviceCollectives::reduce_scatter(std::span<const float> whole, std::span<float> part,
                                       int64_t block, DataType wire) {
  direct_.reduce_scatter(whole, part, block, wire_of(wire));
}

void DeviceCollectives::all_gather(std::span<const std::byte> part, std::span<std::byte> whole,
                                   int64_t block_bytes) {
  direct_.all_gather(part, whole, block_bytes);
}

void DeviceCollectives::post(int ticket, BackgroundWork& work) {
  const auto index = static_cast<size_t>(ticket);
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  if (number_of_ticket_.size() <= index) number_of_ticket_.resize(index + 1, 0);
  number_of_ticket_[index] = ++posted_;
  queue_.push_back({posted_, &work});
  changed_.notify_all();
}

void DeviceCollectives::wait(int ticket) {
  const auto start = Clock::now();
  const TraceScope scope(trace_, trace_device_, TraceCategory::wait, "gradients");
  std::unique_lock lock(mutex_);
  const int64_t number = number_of_ticket_.at(static_cast<size_t>(ticket));
  changed_.wait(lock, [&] { return error_ || finished_ >= number; });
  exposed_seconds_ += seconds_since(start);
  if (error_) std::rethrow_exception(error_);
}

double DeviceCollectives::background_seconds() const {
  const std::lock_guard lock(mutex_);
  return background_seconds_;
}

double DeviceCollectives::exposed_seconds() const {
  const std::lock_guard lock(mutex_);
  return exposed_seconds_;
}

void DeviceCollectives::serve() {
  set_team_size(1);
  Inner inner(background_);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    const Posted next = queue_.front();
    queue_.pop_front();
    lock.unlock();
    const auto start = Clock::now();
    std::exception_ptr error;
    try {
      const TraceScope scope(trace_, trace_device_, TraceCategory::communication, "gradients");
      next.work->run(inner);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    background_seconds_ += seconds_since(start);
    finished_ = next.number;
    if (error) error_ = error;
    changed_.notify_all();
    if (error) return;
  }
}

}  // namespace millrace
