#include "forgetful_backend.h"

#include "backend/raw.h"

namespace millrace::testing {

class ForgetfulBackend::ForgetfulStream : public backend::Stream, public backend::Timeline {
 public:
  ForgetfulStream(ForgetfulBackend& backend, std::unique_ptr<backend::Stream> stream, int number,
                  backend::StreamKind kind)
      : backend_(backend), stream_(std::move(stream)), number_(number), kind_(kind) {}

  void give(const backend::Command& command, const backend::CommandNote& note) override {
    backend_.touch(command);
    stream_->give(command, note);
  }
  backend::Event record() override { return {this, stream_->record().number()}; }
  void await(const backend::Event& event) override {
    if (event.timeline() == nullptr) return;
    const auto& other = static_cast<const ForgetfulStream&>(*event.timeline());
    if (backend_.ask({number_, other.number_})) return;
    stream_->await({other.inner(), event.number()});
  }
  double seconds_communicating() const override { return 0; }
  void set_observer(backend::StreamObserver* observer) override { stream_->set_observer(observer); }

  bool is_done(int64_t number) override { return backend::Event(inner(), number).is_done(); }
  void wait(int64_t number) override {
    if (kind_ == backend::StreamKind::direct && backend_.ask({Wait::kHost, number_})) return;
    backend::Event(inner(), number).wait();
  }

 private:
  backend::Timeline* inner() const {
    return const_cast<backend::Timeline*>(stream_->record().timeline());
  }

  ForgetfulBackend& backend_;
  const std::unique_ptr<backend::Stream> stream_;
  const int number_;
  const backend::StreamKind kind_;
};

std::unique_ptr<backend::Stream> ForgetfulBackend::make_stream(
    const backend::StreamOptions& options) {
  auto stream = backend_->make_stream(options);
  const std::lock_guard lock(mutex_);
  return std::make_unique<ForgetfulStream>(*this, std::move(stream), streams_++, options.kind);
}

bool ForgetfulBackend::ask(const Wait& wait) {
  const std::lock_guard lock(mutex_);
  asked_.insert(wait);
  return wait == forgotten_;
}

void ForgetfulBackend::touch(const backend::Command& command) {
  const std::lock_guard lock(mutex_);
  if (const auto* read = std::get_if<backend::command::Read>(&command)) {
    if (forgotten_ == Wait{Wait::kHostReads, reads_++}) {
      *static_cast<std::byte*>(read->to) = *backend::raw(read->from, 0);
    }
  } else if (const auto* write = std::get_if<backend::command::Write>(&command)) {
    if (forgotten_ == Wait{Wait::kHostWrites, writes_++}) {
      *backend::raw(write->to, 0) = *static_cast<const std::byte*>(write->from);
    }
  }
}

std::set<Wait> ForgetfulBackend::asked() const {
  const std::lock_guard lock(mutex_);
  return asked_;
}

}  // namespace millrace::testing
