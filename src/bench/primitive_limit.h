// The time a training step could not beat: its convolutions, linear layers and batch norms, each
// run alone by the best oneDNN primitive in the layouts it likes best, added up.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace millrace::bench {

// Owns buffers as large as the largest layer. Use on a device's thread.
class PrimitiveLimit {
 public:
  // `graph` is a forward graph; backward primitives are derived from it.
  explicit PrimitiveLimit(const graph::Graph& graph);
  ~PrimitiveLimit();
  PrimitiveLimit(const PrimitiveLimit&) = delete;
  PrimitiveLimit& operator=(const PrimitiveLimit&) = delete;

  // Times every primitive once more.
  void measure();

  // The sum over the step of each primitive's median, best candidate.
  double seconds() const;

  // The part of one kind: "convolution", "linear" or "batch_norm".
  double seconds(const std::string& kind) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::bench
