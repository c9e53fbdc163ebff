// The links of a cluster as the simulator sees them, and which of them a message uses.
#pragma once

#include <utility>
#include <vector>

#include "simulate/cluster.h"
#include "simulate/collective.h"
#include "simulate/simulator.h"

namespace millrace::simulate {

// What a message between two devices, or a collective, takes.
struct LinkPath {
  std::vector<int> links;  // indices into Fabric::links()
  double rate = 0;         // bytes per second if nothing else is under way
  double latency = 0;      // of one hop
};

// Each device has a port out and a port in; pairs joined by bonded links have these to themselves;
// traffic between the sockets of a machine shares one link a direction, and so does traffic between
// machines at each machine's network card. Borrows the cluster.
class Fabric {
 public:
  explicit Fabric(const Cluster& cluster);

  const Cluster& cluster() const { return cluster_; }
  const std::vector<SimulationLink>& links() const { return links_; }

  // Between two devices; from a device to itself: no links, at the speed of its memory.
  LinkPath between(int from, int to) const;

  // A ring over these devices in ascending order; rings over bonded links use all of a device's
  // links to other members at once. One device: no links. Of a ring over very many machines, the
  // links of those in the middle are left out: no other stage has devices there.
  LinkPath ring(const std::vector<int>& devices) const;

 private:
  // What a ring finds among the devices of one machine.
  struct LocalRing {
    double rate = 0;
    double latency = 0;
    bool bonded = false;
  };

  LinkClass local_link(int from, int to) const;  // numbers within a machine
  double bonded_bandwidth(int device, const std::vector<int>& others) const;
  LocalRing local_ring(const std::vector<int>& local) const;

  const Cluster& cluster_;
  std::vector<LinkClass> local_links_;  // of a machine, row by row
  std::vector<SimulationLink> links_;
  std::vector<std::pair<int, int>> bonded_pairs_;  // of one machine, ascending
  int pairs_begin_ = 0, sockets_begin_ = 0, network_begin_ = 0;
};

// Fills in the links, bytes and time of a message of `bytes`; `efficiency` is the share of a link's
// rate that software reaches.
void route_message(SimulationItem& item, const LinkPath& route, double bytes, double efficiency);

// As route_message, for a collective among `members` devices, which takes whichever of the two is
// faster.
void route_collective(SimulationItem& item, const LinkPath& route, Collective kind, int members,
                      double bytes, double efficiency);

}  // namespace millrace::simulate
