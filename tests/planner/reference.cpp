#include "reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace millrace::reference {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Relations {
  Nodes kept;
  std::vector<Nodes> successors, ancestors;
};

Relations relate(const planner::Profile& profile) {
  const int count = static_cast<int>(profile.nodes.size());
  Relations relations{{}, std::vector<Nodes>(count), std::vector<Nodes>(count)};
  for (int node = 0; node < count; ++node) {
    const std::string& text = profile.nodes[node].description;
    const bool fed = std::any_of(profile.edges.begin(), profile.edges.end(),
                                 [&](const auto& edge) { return edge.second == node; });
    const bool feeds = std::any_of(profile.edges.begin(), profile.edges.end(),
                                   [&](const auto& edge) { return edge.first == node; });
    if (!fed && text.rfind("Input", 0) == 0) continue;
    if (!feeds && text.rfind("__getitem__", 0) == 0) continue;
    relations.kept.insert(node);
  }
  for (int round = 0; round < count; ++round) {
    for (const auto& [from, to] : profile.edges) {
      if (relations.kept.count(from) == 0 || relations.kept.count(to) == 0) continue;
      relations.successors[from].insert(to);
      const Nodes before = relations.ancestors[from];
      relations.ancestors[to].insert(before.begin(), before.end());
      relations.ancestors[to].insert(from);
    }
  }
  return relations;
}

Nodes augment(const Relations& relations, const Nodes& antichain) {
  Nodes result = antichain;
  for (const int a : antichain) {
    for (const int p : relations.ancestors[a]) {
      for (const int q : relations.successors[p]) {
        if (q != a && relations.ancestors[a].count(q) == 0) result.insert(p);
      }
    }
  }
  return result;
}

bool has_descendant(const Relations& relations, int node, const Nodes& among) {
  return std::any_of(among.begin(), among.end(),
                     [&](int other) { return relations.ancestors[other].count(node) > 0; });
}

bool inside(const Nodes& inner, const Nodes& outer) {
  return inner.size() < outer.size() &&
         std::includes(outer.begin(), outer.end(), inner.begin(), inner.end());
}

class Search {
 public:
  Search(const std::vector<Cut>& cuts, const planner::PipedreamOptions& options)
      : cuts_(cuts), options_(options) {}

  // Everything after `start` up to `end`, with the workers of the level.
  double seconds(int level, int start, int end) const {
    double best = kNever;
    const int workers = options_.levels[level].workers;
    for (int first = 0; first < static_cast<int>(cuts_.size()); ++first) {
      if (!(first == end || inside(cuts_[first].prefix, cuts_[end].prefix))) continue;
      if (start >= 0 && !inside(cuts_[start].prefix, cuts_[first].prefix)) continue;
      const double compute = part_seconds(level, start, first);
      for (int replicas = 1; replicas <= (options_.straight ? 1 : workers); ++replicas) {
        if (!allowed(start, first, workers - replicas, replicas)) continue;
        double reduce = reduce_seconds(level, start, first, replicas);
        if (level > 0) reduce /= options_.levels[level - 1].workers;
        go_on(level, first, end, replicas, (compute + reduce) / replicas, best);
      }
    }
    return best;
  }

 private:
  void go_on(int level, int at, int end, int used, double slowest, double& best) const {
    const auto& [workers, bandwidth] = options_.levels[level];
    if (at == end) {
      if (used == workers || options_.fewer) best = std::min(best, slowest);
      return;
    }
    const int most_idle = options_.fewer ? workers - used : 0;
    for (int next = 0; next < static_cast<int>(cuts_.size()); ++next) {
      if (!inside(cuts_[at].prefix, cuts_[next].prefix)) continue;
      if (next != end && !inside(cuts_[next].prefix, cuts_[end].prefix)) continue;
      const double compute = part_seconds(level, at, next);
      for (int idle = 0; idle <= most_idle; ++idle) {
        const int most = options_.straight ? 1 : workers;
        for (int replicas = 1; replicas <= most && used + idle + replicas <= workers; ++replicas) {
          const int total = used + idle + replicas;
          if (!allowed(at, next, workers - total, replicas)) continue;
          double stage = (compute + reduce_seconds(level, at, next, replicas)) / replicas;
          if (options_.activation_ratio) {
            double transfer = 2 * cuts_[at].output / (replicas * bandwidth);
            if (next + 1 != static_cast<int>(cuts_.size())) {
              transfer = std::max(transfer, 2 * cuts_[next].output / (replicas * bandwidth));
            }
            stage = std::max(stage, transfer / *options_.activation_ratio);
          }
          go_on(level, next, end, total, std::max(slowest, stage), best);
        }
      }
    }
  }

  double part_seconds(int level, int start, int end) const {
    if (level > 0) return seconds(level - 1, start, end);
    return cuts_[end].seconds - (start < 0 ? 0 : cuts_[start].seconds);
  }
  double parameters(int start, int end) const {
    return cuts_[end].parameters - (start < 0 ? 0 : cuts_[start].parameters);
  }
  double reduce_seconds(int level, int start, int end, int replicas) const {
    return 4.0 * (replicas - 1) * parameters(start, end) /
           (replicas * options_.levels[level].bandwidth);
  }
  bool allowed(int start, int end, int behind, int replicas) const {
    const double activations = cuts_[end].activations - (start < 0 ? 0 : cuts_[start].activations);
    const double copies = std::ceil(static_cast<double>(behind) / replicas);
    return !options_.memory_bytes ||
           copies * (activations + parameters(start, end)) <= *options_.memory_bytes;
  }

  const std::vector<Cut>& cuts_;
  const planner::PipedreamOptions& options_;
};

}  // namespace

std::vector<Cut> find_cuts(const planner::Profile& profile) {
  const Relations relations = relate(profile);
  Nodes start;
  for (const int node : relations.kept) {
    if (start.empty() && relations.ancestors[node].empty()) start.insert(node);
  }
  std::vector<Nodes> antichains = {start};
  for (size_t done = 0; done < antichains.size(); ++done) {
    const Nodes chain = antichains[done];
    const Nodes wide = augment(relations, chain);
    for (const int u : wide) {
      for (const int v : relations.successors[u]) {
        if (chain.count(v) > 0 || has_descendant(relations, v, wide)) continue;
        Nodes replaced = wide;
        replaced.erase(u);
        replaced.insert(v);
        Nodes next;
        for (const int node : replaced) {
          if (!has_descendant(relations, node, replaced)) next.insert(node);
        }
        if (std::find(antichains.begin(), antichains.end(), next) == antichains.end()) {
          antichains.push_back(next);
        }
      }
    }
  }
  std::vector<Cut> cuts;
  for (const Nodes& antichain : antichains) {
    Cut cut{.antichain = antichain, .prefix = antichain};
    for (const int node : antichain) {
      cut.prefix.insert(relations.ancestors[node].begin(), relations.ancestors[node].end());
    }
    for (const int index : cut.prefix) {
      const planner::ProfileNode& node = profile.nodes[index];
      cut.seconds += (node.forward_milliseconds + node.backward_milliseconds) / 1000;
      cut.activations += node.activation_bytes;
      cut.parameters += node.parameter_bytes;
    }
    for (const int node : augment(relations, antichain)) {
      cut.output += profile.nodes[node].activation_bytes;
    }
    cuts.push_back(cut);
  }
  std::stable_sort(cuts.begin(), cuts.end(),
                   [](const Cut& a, const Cut& b) { return a.prefix.size() < b.prefix.size(); });
  return cuts;
}

double exhaustive_seconds(const std::vector<Cut>& cuts, const planner::PipedreamOptions& options) {
  return Search(cuts, options)
      .seconds(static_cast<int>(options.levels.size()) - 1, -1, static_cast<int>(cuts.size()) - 1);
}

planner::Profile make_profile(int nodes, const std::vector<std::pair<int, int>>& edges,
                              unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  planner::Profile profile;
  for (int node = 0; node < nodes; ++node) {
    profile.nodes.push_back({.id = fmt::format("n{}", node),
                             .description = "operator",
                             .forward_milliseconds = 100 * uniform(random),
                             .backward_milliseconds = 200 * uniform(random),
                             .activation_bytes = 1e8 * uniform(random),
                             .parameter_bytes = 2e8 * std::pow(uniform(random), 4),
                             .stage = {}});
  }
  profile.edges = edges;
  return profile;
}

planner::Profile random_profile(int nodes, double density, unsigned seed) {
  std::mt19937 random(seed);
  std::bernoulli_distribution chosen(density);
  std::vector<std::pair<int, int>> edges;
  for (int to = 1; to < nodes; ++to) {
    bool fed = false;
    for (int from = 0; from < to; ++from) {
      if (!chosen(random)) continue;
      edges.emplace_back(from, to);
      fed = true;
    }
    if (!fed && !chosen(random)) edges.emplace_back(to - 1, to);
  }
  return make_profile(nodes, edges, seed + 1);
}

planner::Profile published(const std::string& name) {
  return planner::read_profile(std::string(MILLRACE_TEST_DATA) + "/profiles/" + name + ".txt");
}

}  // namespace millrace::reference
