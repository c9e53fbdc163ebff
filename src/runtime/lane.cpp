#include "runtime/lane.h"

#include <algorithm>
#include <chrono>
#include <span>

#include "comm/local_group.h"

namespace millrace {

void Bell::ring() {
  {
    const std::lock_guard lock(mutex_);
    ++rings_;
  }
  changed_.notify_all();
}

int64_t Bell::rings() const {
  const std::lock_guard lock(mutex_);
  return rings_;
}

void Bell::wait(int64_t known) const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return rings_ > known; });
}

Lane::Lane(LaneOptions options, bool sends)
    : options_(std::move(options)), sends_(sends), thread_([this] { serve(); }) {}

Lane::~Lane() {
  bool under_way = false;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    under_way = !error_ && done_ < allowed_;
  }
  changed_.notify_all();
  if (under_way) options_.group.fail("it stopped while '" + options_.name + "' was on its way");
  thread_.join();
}

void Lane::allow(int64_t total) {
  {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    allowed_ = total;
  }
  changed_.notify_all();
}

int64_t Lane::done() const {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  return done_;
}

void Lane::wait_for(int64_t total) {
  std::unique_lock lock(mutex_);
  if (!error_ && done_ < total) {
    const auto start = std::chrono::steady_clock::now();
    changed_.wait(lock, [&] { return error_ || done_ >= total; });
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    seconds_waited_ += waited.count();
  }
  if (error_) std::rethrow_exception(error_);
}

void Lane::transfer(int64_t number) {
  const std::span<std::byte> data(buffer(number), static_cast<size_t>(options_.bytes));
  if (!sends_) {
    options_.group.receive(options_.peer, data, options_.tag);
    return;
  }
  const TraceScope scope(options_.trace, options_.trace_device, TraceCategory::communication,
                         options_.name);
  options_.group.send(options_.peer, std::span<const std::byte>(data), options_.tag);
}

void Lane::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || done_ < allowed_; });
    if (stopping_) return;
    const int64_t number = done_;
    lock.unlock();
    std::exception_ptr error;
    try {
      transfer(number);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) {
      error_ = error;
    } else {
      ++done_;
    }
    changed_.notify_all();
    if (options_.bell != nullptr) options_.bell->ring();
    if (error) return;
  }
}

std::byte* SendLane::reserve() {
  wait_for(committed_ + 1 - ring_size());
  return buffer(committed_);
}

void SendLane::commit() { allow(++committed_); }

void ReceiveLane::expect(int64_t count) {
  expected_ += count;
  allow_next();
}

const std::byte* ReceiveLane::front() {
  wait_for(popped_ + 1);
  return buffer(popped_);
}

void ReceiveLane::pop() {
  ++popped_;
  allow_next();
}

void ReceiveLane::allow_next() { allow(std::min(expected_, popped_ + ring_size())); }

Group Loopbacks::end(int device, int tag, bool sends) {
  std::vector<Group>& groups = groups_[{device, tag}];
  if (groups.empty()) groups = make_local_groups(2, {});
  return groups[sends ? 0 : 1];
}

}  // namespace millrace
