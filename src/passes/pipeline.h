// Runs passes in order, checks the graph after each, and can show what each did.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace millrace::passes {

struct PipelineOptions {
  // Where to write "NN-name.txt" and "NN-name.dot" after each pass, and "00-input" before the
  // first; made if missing. Empty: nothing is written.
  std::filesystem::path dump_directory;
};

// Owns its passes; running it changes only the graph and the dump directory.
class PassPipeline {
 public:
  void add(std::string name, std::function<void(graph::Graph&)> pass);

  // Throws std::logic_error naming the pass after which the graph is no longer valid. Errors of
  // the passes themselves go through unchanged.
  void run(graph::Graph& graph, const PipelineOptions& options = {}) const;

 private:
  struct Pass {
    std::string name;
    std::function<void(graph::Graph&)> run;
  };
  std::vector<Pass> passes_;
};

}  // namespace millrace::passes
