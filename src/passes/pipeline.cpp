#include "passes/pipeline.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace millrace::passes {
namespace {

void check(const graph::Graph& graph, const std::string& when) {
  try {
    graph.validate();
  } catch (const std::exception& error) {
    throw std::logic_error(fmt::format("{}: {}", when, marked_text(error)));
  }
}

void dump(const graph::Graph& graph, const std::filesystem::path& directory, size_t number,
          const std::string& name) {
  if (directory.empty()) return;
  const std::string stem = fmt::format("{:02}-{}", number, name);
  write_text(directory / (stem + ".txt"), graph::to_text(graph));
  write_text(directory / (stem + ".dot"), graph::to_graphviz(graph));
}

}  // namespace

void PassPipeline::add(std::string name, std::function<void(graph::Graph&)> pass) {
  passes_.push_back({std::move(name), std::move(pass)});
}

void PassPipeline::run(graph::Graph& graph, const PipelineOptions& options) const {
  const std::filesystem::path& directory = options.dump_directory;
  if (!directory.empty()) make_directory(directory, "‹dump_passes›");
  check(graph, "the graph before the first pass");
  dump(graph, directory, 0, "input");
  for (size_t i = 0; i < passes_.size(); ++i) {
    passes_[i].run(graph);
    check(graph, fmt::format("the graph after pass '{}'", passes_[i].name));
    dump(graph, directory, i + 1, passes_[i].name);
  }
}

}  // namespace millrace::passes
