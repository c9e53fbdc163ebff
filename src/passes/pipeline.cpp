#include "passes/pipeline.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "base/file.h"

namespace millrace {
namespace {

void check(const Graph& graph, const std::string& when) {
  try {
    graph.validate();
  } catch (const std::exception& error) {
    throw std::logic_error(fmt::format("{}: {}", when, error.what()));
  }
}

void dump(const Graph& graph, const std::filesystem::path& directory, size_t number,
          const std::string& name) {
  if (directory.empty()) return;
  const std::string stem = fmt::format("{:02}-{}", number, name);
  write_text(directory / (stem + ".txt"), to_text(graph));
  write_text(directory / (stem + ".dot"), to_graphviz(graph));
}

}  // namespace

void PassPipeline::add(std::string name, std::function<void(Graph&)> pass) {
  passes_.push_back({std::move(name), std::move(pass)});
}

void PassPipeline::run(Graph& graph, const PipelineOptions& options) const {
  const std::filesystem::path& directory = options.dump_directory;
  if (!directory.empty()) make_directory(directory, "--dump-passes");
  check(graph, "the graph before the first pass");
  dump(graph, directory, 0, "input");
  for (size_t i = 0; i < passes_.size(); ++i) {
    passes_[i].run(graph);
    check(graph, fmt::format("the graph after pass '{}'", passes_[i].name));
    dump(graph, directory, i + 1, passes_[i].name);
  }
}

}  // namespace millrace
