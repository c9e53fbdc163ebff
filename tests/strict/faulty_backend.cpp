#include "faulty_backend.h"

#include <unistd.h>

#include <cstring>
#include <map>
#include <stdexcept>

#include "backend/raw.h"

namespace millrace::testing {
namespace {

constexpr int kPlaces = 4;      // of a stream's commands
constexpr int kAccesses = 6;    // by the host, of each kind
constexpr int kFirstPlace = 8;  // of a kernel; before it little depends on others

// Looks at the step's values that are current when it runs.
class LateKernel : public kernels::Kernel {
 public:
  LateKernel(kernels::Kernel& kernel, const kernels::StepState& current)
      : kernel_(kernel), current_(current) {}

  void run(const kernels::KernelArguments& arguments) override {
    kernels::KernelArguments late = arguments;
    if (late.step != nullptr) late.step = &current_;
    kernel_.run(late);
  }
  void settle(const kernels::KernelArguments& arguments) override { kernel_.settle(arguments); }

 private:
  kernels::Kernel& kernel_;
  const kernels::StepState& current_;
};

}  // namespace

std::string_view name_of(Fault::Kind kind) {
  constexpr std::string_view kNames[] = {"none",         "no wait",     "early event",
                                         "wrong stream", "lost place",  "early reuse",
                                         "host reads",   "host writes", "late step"};
  return kNames[static_cast<size_t>(kind)];
}

class FaultyBackend::FaultyStream : public backend::Stream, public backend::Timeline {
 public:
  FaultyStream(FaultyBackend& backend, std::unique_ptr<backend::Stream> stream, int number,
               backend::StreamKind kind)
      : backend_(backend), number_(number), kind_(kind), stream_(std::move(stream)) {}
  ~FaultyStream() override {
    const std::lock_guard lock(backend_.mutex_);
    backend_.streams_[static_cast<size_t>(number_)] = nullptr;
  }

  void give(const backend::Command& command, const backend::CommandNote& note) override {
    backend_.touch(command);
    if (const auto* write = std::get_if<backend::command::Write>(&command)) {
      if (is_place(Fault::Kind::early_reuse, written_++)) return give_and_spoil(*write);
    }
    const auto* launch = std::get_if<backend::command::Launch>(&command);
    if (launch != nullptr && launch->step != nullptr && !launch->settles &&
        backend_.asks({Fault::Kind::late_step, number_, 0})) {
      return give_late(*launch, note);
    }
    if (launch != nullptr && !launch->settles &&
        is_place(Fault::Kind::lost_place, launched_++ - kFirstPlace)) {
      return pass_on(*backend_.other_stream(number_, number_), command, note);
    }
    pass_on(*stream_, command, note);
  }
  backend::Event record() override { return {this, stream_->record().number()}; }
  void await(const backend::Event& event) override {
    if (event.timeline() == nullptr) return;
    const auto& other = static_cast<const FaultyStream&>(*event.timeline());
    if (backend_.asks({Fault::Kind::no_wait, number_, other.number_})) return;
    backend::Event whole = {other.inner(), event.number()};
    if (backend_.asks({Fault::Kind::early_event, number_, other.number_})) {
      whole = {other.inner(), event.number() - 1};
    }
    if (backend_.asks({Fault::Kind::wrong_stream, number_, other.number_})) {
      return backend_.other_stream(number_, other.number_)->await(whole);
    }
    stream_->await(whole);
  }
  double seconds_communicating() const override { return 0; }
  void set_observer(backend::StreamObserver* observer) override { stream_->set_observer(observer); }

  bool is_done(int64_t number) override { return backend::Event(inner(), number).is_done(); }
  void wait(int64_t number) override {
    const bool orders = kind_ == backend::StreamKind::direct;
    if (orders && backend_.asks({Fault::Kind::no_wait, Fault::kHost, number_})) return;
    const bool early = orders && backend_.asks({Fault::Kind::early_event, Fault::kHost, number_});
    backend::Event(inner(), early ? number - 1 : number).wait();
  }

 private:
  backend::Timeline* inner() const {
    return const_cast<backend::Timeline*>(stream_->record().timeline());
  }
  bool is_place(Fault::Kind kind, int place) {
    return place >= 0 && place < kPlaces && backend_.asks({kind, number_, place});
  }
  void give_and_spoil(const backend::command::Write& write) {
    const int64_t bytes = write.tensor == nullptr ? write.bytes : write.tensor->bytes();
    const auto* from = static_cast<const std::byte*>(write.from);
    reused_.assign(from, from + bytes);
    backend::command::Write given = write;
    given.from = reused_.data();
    pass_on(*stream_, given, {});
    std::memset(reused_.data(), 0xff, reused_.size());  // not a number, no label
  }
  void give_late(const backend::command::Launch& launch, const backend::CommandNote& note) {
    current_ = *launch.step;
    auto& late = late_[launch.kernel];
    if (!late) late = std::make_unique<LateKernel>(*launch.kernel, current_);
    backend::command::Launch given = launch;
    given.kernel = late.get();
    pass_on(*stream_, given, note);
  }
  // A fault that was seen ends the process: other devices may wait for this one.
  static void pass_on(backend::Stream& stream, const backend::Command& command,
                      const backend::CommandNote& note) {
    try {
      stream.give(command, note);
    } catch (const std::logic_error&) {
      ::_exit(1);
    }
  }

  FaultyBackend& backend_;
  const int number_;
  const backend::StreamKind kind_;
  int written_ = 0;
  int launched_ = 0;
  std::vector<std::byte> reused_;
  kernels::StepState current_;
  std::map<kernels::Kernel*, std::unique_ptr<LateKernel>> late_;
  const std::unique_ptr<backend::Stream> stream_;  // last: it uses everything above
};

std::unique_ptr<backend::Stream> FaultyBackend::make_stream(const backend::StreamOptions& options) {
  auto stream = backend_->make_stream(options);
  const std::lock_guard lock(mutex_);
  backend::Stream* whole = stream.get();
  auto faulty = std::make_unique<FaultyStream>(*this, std::move(stream),
                                               static_cast<int>(streams_.size()), options.kind);
  streams_.push_back(whole);
  return faulty;
}

backend::Stream* FaultyBackend::other_stream(int one, int two) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < streams_.size(); ++i) {
    const bool meant = static_cast<int>(i) == one || static_cast<int>(i) == two;
    if (!meant && streams_[i] != nullptr) return streams_[i];
  }
  throw std::logic_error("no other stream");
}

bool FaultyBackend::asks(const Fault& fault) {
  const std::lock_guard lock(mutex_);
  possible_.insert(fault);
  return fault == fault_;
}

void FaultyBackend::touch(const backend::Command& command) {
  if (const auto* read = std::get_if<backend::command::Read>(&command)) {
    if (reads_ < kAccesses && asks({Fault::Kind::host_reads, 0, reads_++})) {
      *static_cast<std::byte*>(read->to) = *backend::raw(read->from, 0);
    }
  } else if (const auto* write = std::get_if<backend::command::Write>(&command)) {
    if (writes_ < kAccesses && asks({Fault::Kind::host_writes, 0, writes_++})) {
      *backend::raw(write->to, 0) = *static_cast<const std::byte*>(write->from);
    }
  }
}

std::set<Fault> FaultyBackend::possible() const {
  const std::lock_guard lock(mutex_);
  return possible_;
}

}  // namespace millrace::testing
