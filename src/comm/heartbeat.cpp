#include "comm/heartbeat.h"

#include "comm/mpi_module.h"

namespace millrace::comm {

Heartbeat::Heartbeat(MpiSession& session, JobGroups& groups, HeartbeatOptions options) {
  if (session.size() == 1) return;
  MpiProcesses processes = {session.rank(), session.size(), {}};
  for (int rank = 0; rank < session.size(); ++rank) processes.names.push_back(session.name(rank));
  session.set_listener([&](const std::string& sentence) { groups.stop(sentence); });
  session_ = &session;
  const auto fail = [&](const std::string& sentence) { session.fail(sentence); };
  beats_ = session.take_beats();
  if (beats_ == nullptr) {
    own_ = session.join([&] { return session.module()->make_beats(processes, options, fail); });
    beats_ = own_.get();
  }
  session.set_activities([this](int rank) { return beats_->activity_of(rank); });
  session.set_heard(true);
}

Heartbeat::~Heartbeat() {
  if (session_ != nullptr) session_->set_activities({});
  if (beats_ != nullptr) beats_->leave();
  own_.reset();
  if (session_ != nullptr) session_->set_listener({});
}

void Heartbeat::set_activity(const std::string& what) {
  if (beats_ == nullptr) return;
  beats_->set_activity(what);
  session_->set_activity(what);
}

void Heartbeat::fail(const std::string& reason) noexcept {
  if (beats_ != nullptr) beats_->fail(reason);
}

void Heartbeat::finish() {
  if (beats_ == nullptr) return;
  beats_->finish();
  session_->set_heard(false);
}

}  // namespace millrace::comm
