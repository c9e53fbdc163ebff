// The twin of mpi_heartbeat.cpp for builds without MPI, whose jobs have one rank.
#include "comm/heartbeat.h"

namespace millrace {

class Heartbeat::Impl {};

Heartbeat::Heartbeat(MpiSession&, JobGroups&, HeartbeatOptions) {}
Heartbeat::~Heartbeat() = default;
void Heartbeat::set_activity(const std::string&) {}
void Heartbeat::fail(const std::string&) noexcept {}
void Heartbeat::finish() {}

}  // namespace millrace
