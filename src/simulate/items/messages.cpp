#include "simulate/items/messages.h"

#include <algorithm>

namespace millrace::simulate {

SimulatedMessages::SimulatedMessages(ItemWriter& writer)
    : writer_(writer),
      ways_(2 * static_cast<size_t>(writer.workers().count())),
      rooms_(messages().size()) {
  for (size_t i = 0; i < messages().size(); ++i) {
    const Message& message = messages()[i];
    const SimulatedWorkers& workers = writer.workers();
    ways(workers.number_of(message.from_stage, message.from_member), message.gradients)
        .out.push_back(i);
    ways(workers.number_of(message.to_stage, message.to_member), message.gradients).in.push_back(i);
  }
  start_segment();
}

SimulatedMessages::Ways& SimulatedMessages::ways(int worker, bool gradients) {
  return ways_[2 * static_cast<size_t>(worker) + (gradients ? 1 : 0)];
}

void SimulatedMessages::start_segment() { transfers_.assign(messages().size(), {}); }

SimulatedMessages::Room SimulatedMessages::room_of(size_t message) {
  Room& room = rooms_[message];
  if (room.sending < 0) {
    room.sending = writer_.add_counter(1);
    room.receiving = writer_.add_counter(static_cast<int>(messages()[message].slots));
  }
  return room;
}

int SimulatedMessages::add_transfer(size_t number, int from, int to, int64_t micro_batch) {
  const Message& message = messages()[number];
  const SimulatedWorkers& workers = writer_.workers();
  const HostLinks& host = writer_.host();
  const int source = workers[from].device, target = workers[to].device;
  const bool in_turn = writer_.job().steady && source != target;
  const int id = writer_.add(message.name, "communication",
                             in_turn ? writer_.message_lane(from, to) : -1, from, micro_batch);
  if (message.bytes > 0) {
    SimulationItem& item = writer_.item(id);
    route_message(item, writer_.fabric().between(source, target), message.bytes, 1);
    if (message.rate > 0) item.rate = message.rate;
    if (host.is_shared() && host.machine_of(source) == host.machine_of(target)) {
      item.weights.assign(item.links.size(), 1);
      item.links.push_back(host.cores_of(target));
      item.weights.push_back(1 / item.rate);
    }
  }
  if (message.slots > 0) {
    const Room room = room_of(number);
    writer_.item(id).acquire = {room.receiving};
    writer_.item(id).release = {room.sending};
  }
  return id;
}

void SimulatedMessages::receive(int worker, bool gradients, int64_t micro_batch) {
  for (const size_t number : ways(worker, gradients).in) {
    const Message& message = messages()[number];
    if (!message.carries(micro_batch)) continue;
    arrivals_.push_back({-1, number, micro_batch});
    if (message.slots == 0) continue;
    const int id = writer_.add_own("receive", gradients ? "gradients" : "activations", worker,
                                   message.receiving, message.receiving, micro_batch);
    writer_.item(id).release = {room_of(number).receiving};
    arrivals_.back().id = id;
  }
}

void SimulatedMessages::arrive(int id) {
  for (; bound_ < arrivals_.size(); ++bound_) {
    if (arrivals_[bound_].id < 0) arrivals_[bound_].id = id;
  }
}

void SimulatedMessages::send(int worker, bool gradients, int64_t micro_batch, int made) {
  for (const size_t number : ways(worker, gradients).out) {
    const Message& message = messages()[number];
    if (!message.carries(micro_batch)) continue;
    int behind = made;
    if (message.slots > 0 || message.sending > 0) {
      behind =
          writer_.add_own("send", "room", worker, message.sending, message.sending, micro_batch);
      if (writer_.is_free()) writer_.follow(behind, made);
      if (message.slots > 0) writer_.item(behind).acquire = {room_of(number).sending};
    }
    const int to = writer_.workers().number_of(message.to_stage, message.to_member);
    std::vector<int>& transfers = transfers_[number];
    transfers.resize(std::max(transfers.size(), static_cast<size_t>(micro_batch) + 1), -1);
    const int id = add_transfer(number, worker, to, micro_batch);
    transfers[static_cast<size_t>(micro_batch)] = id;
    writer_.follow(id, behind);
  }
}

void SimulatedMessages::connect() {
  for (const Arrival& one : arrivals_) {
    writer_.follow(one.id, transfers_[one.message].at(static_cast<size_t>(one.micro_batch)));
  }
  arrivals_.clear();
  bound_ = 0;
}

}  // namespace millrace::simulate
