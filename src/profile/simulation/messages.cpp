#include "profile/simulation/messages.h"

namespace millrace::profile {

SimulatedMessages::SimulatedMessages(ItemWriter& writer) : writer_(writer) {
  if (writer.job().schedule) routes_ = parallel::routes_between(writer.job().routes);
}

double SimulatedMessages::copy_seconds(const parallel::Route& route, bool sends) const {
  const SimulatedJob& job = writer_.job();
  if (job.copy_seconds) return job.copy_seconds(route, sends);
  return static_cast<double>(route.bytes) / job.host.copy_bytes_per_second;
}

bool SimulatedMessages::is_of(const parallel::Route& route, int worker, bool sends, bool gradients,
                              int64_t micro_batch) const {
  const SimulatedWorker& one = writer_.workers()[worker];
  const bool own = sends ? route.from_stage() == one.stage && route.from_member == one.member
                         : route.to_stage() == one.stage && route.to_member == one.member;
  return own && route.gradient == gradients && route.carries(micro_batch);
}

SimulatedMessages::Room SimulatedMessages::room_of(size_t route) {
  const auto known = rooms_.find(route);
  if (known != rooms_.end()) return known->second;
  const int sending = writer_.add_counter(1);
  const int receiving = writer_.add_counter(static_cast<int>(routes_[route].slots));
  return rooms_[route] = {sending, receiving};
}

int SimulatedMessages::transfer_of(size_t number, int64_t micro_batch) {
  const auto known = transfers_.find({number, micro_batch});
  if (known != transfers_.end()) return known->second;
  const parallel::Route& route = routes_[number];
  const SimulatedWorkers& workers = writer_.workers();
  const HostLinks& host = writer_.host();
  const int sender = workers.number_of(route.from_stage(), route.from_member);
  const int from = workers[sender].device;
  const int to = workers[workers.number_of(route.to_stage(), route.to_member)].device;
  const int id = writer_.add(route.name(), "communication", -1, sender, micro_batch);
  planner::SimulationItem& item = writer_.item(id);
  planner::route_message(item, writer_.fabric().between(from, to), static_cast<double>(route.bytes),
                         writer_.job().host.message_efficiency);
  if (host.is_shared() && host.machine_of(from) == host.machine_of(to)) {
    item.weights.assign(item.links.size(), 1);
    item.links.push_back(host.cores_of(to));
    item.weights.push_back(1 / item.rate);
  }
  const Room room = room_of(number);
  item.acquire = {room.receiving};
  item.release = {room.sending};
  return transfers_[{number, micro_batch}] = id;
}

void SimulatedMessages::receive(int worker, bool gradients, int64_t micro_batch) {
  for (size_t i = 0; i < routes_.size(); ++i) {
    if (!is_of(routes_[i], worker, false, gradients, micro_batch)) continue;
    const double seconds = copy_seconds(routes_[i], false);
    const int transfer = transfer_of(i, micro_batch);
    const int id = writer_.add_own("receive", gradients ? "gradients" : "activations", worker,
                                   seconds, seconds, micro_batch);
    writer_.follow(id, transfer);
    writer_.item(id).release = {room_of(i).receiving};
  }
}

void SimulatedMessages::send(int worker, bool gradients, int64_t micro_batch) {
  for (size_t i = 0; i < routes_.size(); ++i) {
    if (!is_of(routes_[i], worker, true, gradients, micro_batch)) continue;
    const double seconds = copy_seconds(routes_[i], true);
    const int id = writer_.add_own("send", "room", worker, seconds, seconds, micro_batch);
    writer_.item(id).acquire = {room_of(i).sending};
    writer_.follow(transfer_of(i, micro_batch), id);
  }
}

}  // namespace millrace::profile
