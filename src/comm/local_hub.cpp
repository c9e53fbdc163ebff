#include "comm/local_hub.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "comm/ordered_sum.h"

namespace millrace::comm {
namespace {

using Clock = std::chrono::steady_clock;

std::string describe(const LocalCall& call) {
  return fmt::format("{} of {} (kind {}, block {})", operation_name(call.operation), call.count,
                     call.kind, call.block);
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

LocalHub::LocalHub(std::vector<std::string> names)
    : names_(std::move(names)), calls_(names_.size()), present_(names_.size(), false) {}

double LocalHub::enter(int member, const LocalCall& call, double deadline) {
  const Clock::time_point start = Clock::now();
  Lock lock(mutex_);
  throw_if_failed();
  calls_[static_cast<size_t>(member)] = call;
  present_[static_cast<size_t>(member)] = true;
  if (++arrived_ < size()) {
    const int64_t round = entered_;
    const bool in_time = wait(lock, changed_, deadline, [&] { return entered_ != round; });
    if (entered_ == round) {
      if (!in_time) {
        set_failure(fmt::format("{} did not join {} within {} seconds.", missing_members(),
                                operation_name(call.operation), deadline));
      }
      throw_if_failed();
    }
    return seconds_since(start);
  }
  for (int other = 0; other < size(); ++other) {
    const LocalCall& theirs = this->call(other);
    const LocalCall& first = calls_[0];
    if (std::tie(theirs.operation, theirs.count, theirs.kind, theirs.block) ==
        std::tie(first.operation, first.count, first.kind, first.block)) {
      continue;
    }
    set_failure(fmt::format("{} calls {} while {} calls {}.", name(other), describe(theirs),
                            name(0), describe(first)));
    throw_if_failed();
  }
  arrived_ = 0;
  std::fill(present_.begin(), present_.end(), false);
  ++entered_;
  changed_.notify_all();
  return 0;
}

double LocalHub::leave() {
  const Clock::time_point start = Clock::now();
  Lock lock(mutex_);
  if (++left_ == size()) {
    left_ = 0;
    ++completed_;
    changed_.notify_all();
    return 0;
  }
  const int64_t round = completed_;
  changed_.wait(lock, [&] { return completed_ != round; });
  return seconds_since(start);
}

double LocalHub::send(int from, int to, const void* data, int64_t bytes, int tag, double deadline) {
  const Clock::time_point start = Clock::now();
  Lock lock(mutex_);
  throw_if_failed();
  Message message = {data, bytes};
  Line& line = lines_[{from, to, tag}];
  line.messages.push_back(&message);
  line.changed.notify_all();
  const bool in_time =
      wait(lock, line.changed, deadline, [&] { return message.progress != Progress::offered; });
  if (message.progress == Progress::offered) {
    line.messages.erase(std::find(line.messages.begin(), line.messages.end(), &message));
    if (!in_time) {
      set_failure(fmt::format("{} did not receive message {} of {} within {} seconds.", name(to),
                              tag, name(from), deadline));
    }
    throw_if_failed();
  }
  line.changed.wait(lock, [&] { return message.progress == Progress::done; });
  return seconds_since(start);
}

double LocalHub::receive(int from, int to, void* data, int64_t bytes, int tag, double deadline) {
  const Clock::time_point start = Clock::now();
  Lock lock(mutex_);
  throw_if_failed();
  Line& line = lines_[{from, to, tag}];
  const bool in_time = wait(lock, line.changed, deadline, [&] { return !line.messages.empty(); });
  if (!in_time && line.messages.empty()) {
    set_failure(fmt::format("{} did not send message {} to {} within {} seconds.", name(from), tag,
                            name(to), deadline));
  }
  throw_if_failed();
  Message& message = *line.messages.front();
  if (message.bytes != bytes) {
    set_failure(fmt::format("{} sends {} bytes as message {} while {} receives {}.", name(from),
                            message.bytes, tag, name(to), bytes));
    throw_if_failed();
  }
  line.messages.pop_front();
  message.progress = Progress::taken;
  const double waited = seconds_since(start);
  lock.unlock();
  parallel_copy(data, message.data, bytes);
  lock.lock();
  message.progress = Progress::done;
  line.changed.notify_all();
  return waited;
}

void LocalHub::stop(const std::string& sentence) {
  const Lock lock(mutex_);
  set_failure(sentence);
}

bool LocalHub::wait(Lock& lock, std::condition_variable& changed, double deadline,
                    const std::function<bool()>& ready) {
  const auto over = [&] { return ready() || !failure_.empty(); };
  if (deadline <= 0) {
    changed.wait(lock, over);
    return true;
  }
  return changed.wait_for(lock, std::chrono::duration<double>(deadline), over);
}

void LocalHub::set_failure(std::string sentence) {
  if (failure_.empty()) failure_ = std::move(sentence);
  changed_.notify_all();
  for (auto& [address, line] : lines_) line.changed.notify_all();
}

void LocalHub::throw_if_failed() const {
  if (!failure_.empty()) throw JobError(failure_);
}

std::string LocalHub::missing_members() const {
  std::string list;
  for (int member = 0; member < size(); ++member) {
    if (present_[static_cast<size_t>(member)]) continue;
    list += (list.empty() ? "" : ", ") + name(member);
  }
  return list;
}

}  // namespace millrace::comm
