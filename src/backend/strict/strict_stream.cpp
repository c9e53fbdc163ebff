#include "backend/strict/strict_stream.h"

#include <algorithm>
#include <stdexcept>

#include "backend/strict/strict_region.h"
#include "base/parallel.h"

namespace millrace::backend {
namespace {

constexpr uint64_t kFlushesOneIn = 4;

}  // namespace

Temper temper_of(const BackendSettings& settings, uint64_t number) {
  switch (settings.order) {
    case BackendSettings::Order::lazy:
      return Temper::late;
    case BackendSettings::Order::eager:
      return Temper::eager;
    case BackendSettings::Order::slow:
      return number == settings.seed ? Temper::late : Temper::eager;
    case BackendSettings::Order::random:
      break;
  }
  return static_cast<Temper>(Random(settings.seed, 78).below(number, 3));
}

uint64_t StrictHub::draw(uint64_t below) { return Random(settings.seed, 77).below(draws++, below); }

const StrictStream* StrictHub::next() {
  if (drawn != nullptr) return drawn;
  std::vector<const StrictStream*> able;
  for (StrictStream* stream : streams) {
    if (stream->is_ready() && !communicates(stream->queue_.front().command.get())) {
      able.push_back(stream);
    }
  }
  if (able.empty()) return nullptr;
  drawn = able[settings.order == BackendSettings::Order::random ? draw(able.size()) : 0];
  wake();
  return drawn;
}

void StrictHub::wake() {
  again = true;
  if (waking) return;
  waking = true;
  while (again) {
    again = false;
    for (StrictStream* stream : streams) {
      if (stream->idle_ && stream->may_go_on()) stream->ready_.notify_one();
    }
  }
  waking = false;
}

StrictStream::StrictStream(std::shared_ptr<StrictHub> hub, uint64_t number, int threads)
    : hub_(std::move(hub)),
      number_(number),
      temper_(temper_of(hub_->settings, number)),
      runner_(kStrictDistance) {
  const Lock lock(hub_->mutex);
  hub_->streams.push_back(this);
  thread_ = std::thread([this, threads] { serve(threads); });
}

StrictStream::~StrictStream() {
  {
    const Lock lock(hub_->mutex);
    stopping_ = true;
    want(given_);
    hub_->wake();
  }
  thread_.join();
  const Lock lock(hub_->mutex);
  hub_->ledger.wait(number_, given_);
  std::erase(hub_->streams, this);
  if (hub_->drawn == this) hub_->drawn = nullptr;
  hub_->wake();
}

StrictStream* StrictStream::stream_of(const Event& event) const {
  for (StrictStream* stream : hub_->streams) {
    if (static_cast<const Timeline*>(stream) == event.timeline()) return stream;
  }
  return nullptr;
}

void StrictStream::check(const Command& command) {
  if (!hub_->settings.checks) return;
  if (const auto* awaited = std::get_if<command::Await>(&command)) {
    const StrictStream* other = stream_of(awaited->event);
    if (other != nullptr) {
      hub_->ledger.await(number_, given_ + 1, other->number_, awaited->event.number());
    }
  }
  const std::string wrong = hub_->ledger.give(number_, given_ + 1, command);
  if (!wrong.empty()) throw std::logic_error(wrong);
}

void StrictStream::give(const Command& command, const CommandNote& note) {
  const Lock lock(hub_->mutex);
  check(command);
  if (failure_.swallows(++given_)) {
    done_ = given_;
    ring_if_asked(command);
    over_.notify_all();
    hub_->wake();
    return;
  }
  queue_.emplace_back(command, note);
  if (temper_ == Temper::eager || (temper_ == Temper::moody && hub_->draw(kFlushesOneIn) == 0)) {
    want(given_);
  }
  // Behind others that are not wanted it changes nothing yet.
  if (queue_.size() == 1 || hub_->talking > 0) hub_->wake();
}

Event StrictStream::record() {
  const Lock lock(hub_->mutex);
  return {this, given_};
}

void StrictStream::await(const Event& event) {
  if (event.timeline() == nullptr || event.timeline() == this) return;
  give(command::Await{event}, {});
}

double StrictStream::seconds_communicating() const {
  const Lock lock(hub_->mutex);
  return seconds_communicating_;
}

void StrictStream::set_observer(StreamObserver* observer) {
  const Lock lock(hub_->mutex);
  observer_ = observer;
}

bool StrictStream::is_done(int64_t number) {
  const Lock lock(hub_->mutex);
  want(number);
  failure_.check(number);
  if (done_ >= number) hub_->ledger.wait(number_, number);
  return done_ >= number;
}

void StrictStream::wait(int64_t number) {
  Lock lock(hub_->mutex);
  want(number);
  over_.wait(lock, [&] { return done_ >= number; });
  failure_.check(number);
  hub_->ledger.wait(number_, number);
}

void StrictStream::want(int64_t number) {
  if (number <= wanted_) return;
  wanted_ = number;
  hub_->wake();
}

bool StrictStream::is_ready() {
  if (queue_.empty()) return false;
  const Command& first = queue_.front().command.get();
  if (std::holds_alternative<command::Ring>(first)) return true;
  if (done_ >= wanted_) return false;
  const auto* awaited = std::get_if<command::Await>(&first);
  if (awaited == nullptr) return true;
  StrictStream* other = stream_of(awaited->event);
  if (other == nullptr) return true;
  other->want(awaited->event.number());
  return other->done_ >= awaited->event.number();
}

void StrictStream::want_talk() {
  const auto talks = std::find_if(queue_.begin(), queue_.end(), [](const Entry& entry) {
    return communicates(entry.command.get());
  });
  if (talks != queue_.end()) want(done_ + 1 + (talks - queue_.begin()));
}

bool StrictStream::may_start() {
  const bool nothing_else = hub_->running == 0 && hub_->next() == nullptr;
  if (hub_->talking > 0 && nothing_else) want_talk();
  if (!is_ready()) return false;
  if (communicates(queue_.front().command.get())) return true;
  return hub_->running == 0 && hub_->next() == this;
}

void StrictStream::run(const Entry& entry) {
  const int64_t begin = steady_now();
  runner_.run(entry.command.get());
  const int64_t end = steady_now();
  if (observer_ != nullptr && entry.note.subject != nullptr) observer_->ran(entry.note, begin, end);
  if (!communicates(entry.command.get())) return;
  const Lock lock(hub_->mutex);
  seconds_communicating_ += static_cast<double>(end - begin) * 1e-9;
}

void StrictStream::fail(std::exception_ptr error) {
  failure_.note(done_, given_, std::move(error));
  done_ = given_;
  for (const Entry& entry : queue_) ring_if_asked(entry.command.get());
  queue_.clear();
}

void StrictStream::run_first(Lock& lock) {
  const Entry& first = queue_.front();
  const Command& command = first.command.get();
  const bool talks = communicates(command);
  const auto* awaited = std::get_if<command::Await>(&command);
  hub_->drawn = talks ? hub_->drawn : nullptr;
  std::exception_ptr error;
  if (awaited != nullptr) {
    const StrictStream* other = stream_of(awaited->event);
    if (other != nullptr) error = other->failure_.error_of(awaited->event.number());
  } else {
    (talks ? hub_->talking : hub_->running) += 1;
    if (talks) hub_->wake();
    lock.unlock();
    try {
      run(first);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    (talks ? hub_->talking : hub_->running) -= 1;
  }
  queue_.pop_front();
  ++done_;
  if (error) fail(std::move(error));
  over_.notify_all();
  hub_->wake();
}

void StrictStream::serve(int threads) {
  if (threads > 0) set_team_size(threads);
  Lock lock(hub_->mutex);
  while (true) {
    idle_ = true;
    ready_.wait(lock, [this] { return may_go_on(); });
    idle_ = false;
    if (queue_.empty()) return;
    run_first(lock);
  }
}

}  // namespace millrace::backend
