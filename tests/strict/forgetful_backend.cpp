#include "forgetful_backend.h"

namespace millrace::testing {

class ForgetfulBackend::ForgetfulStream : public Stream, public Timeline {
 public:
  ForgetfulStream(ForgetfulBackend& backend, std::unique_ptr<Stream> stream, int number,
                  StreamKind kind)
      : backend_(backend), stream_(std::move(stream)), number_(number), kind_(kind) {}

  void give(const Command& command, const CommandNote& note) override {
    stream_->give(command, note);
  }
  Event record() override { return {this, stream_->record().number()}; }
  void await(const Event& event) override {
    if (event.timeline() == nullptr) return;
    const auto& other = static_cast<const ForgetfulStream&>(*event.timeline());
    if (backend_.ask({number_, other.number_})) return;
    stream_->await({other.inner(), event.number()});
  }
  double seconds_communicating() const override { return 0; }
  void set_observer(StreamObserver* observer) override { stream_->set_observer(observer); }

  bool is_done(int64_t number) override { return Event(inner(), number).is_done(); }
  void wait(int64_t number) override {
    if (kind_ == StreamKind::direct && backend_.ask({Wait::kHost, number_})) return;
    Event(inner(), number).wait();
  }

 private:
  Timeline* inner() const { return const_cast<Timeline*>(stream_->record().timeline()); }

  ForgetfulBackend& backend_;
  const std::unique_ptr<Stream> stream_;
  const int number_;
  const StreamKind kind_;
};

std::unique_ptr<Stream> ForgetfulBackend::make_stream(const StreamOptions& options) {
  auto stream = backend_->make_stream(options);
  const std::lock_guard lock(mutex_);
  return std::make_unique<ForgetfulStream>(*this, std::move(stream), streams_++, options.kind);
}

bool ForgetfulBackend::ask(const Wait& wait) {
  const std::lock_guard lock(mutex_);
  asked_.insert(wait);
  return wait == forgotten_;
}

std::set<Wait> ForgetfulBackend::asked() const {
  const std::lock_guard lock(mutex_);
  return asked_;
}

}  // namespace millrace::testing
