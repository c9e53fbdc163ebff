// Graph → Program.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "compile/assembly.h"
#include "compile/program.h"
#include "parallel/stage_graph.h"
#include "passes/optimizer.h"
#include "passes/recompute.h"

namespace millrace::compile {

struct CompileOptions {
  kernels::KernelOptions kernels;
  passes::OptimizerSettings optimizer;
  passes::UpdateOptions updates;
  StepShape shape;
  // Layouts that parameters must have, by name: those of the other devices that hold them.
  // Of a running program, `layouts_of_parameters` gives them.
  std::map<std::string, graph::Layout> layouts;
  passes::PrecisionSettings precision;
  passes::RecomputePolicy recompute = passes::RecomputePolicy::automatic;
  std::string device = "the device";     // as messages call it
  int64_t memory_limit = 0;              // bytes per device; 0: none
  std::filesystem::path dump_directory;  // graphs after each pass; empty: none
};

// Compiles the forward graph of a classifier (results "loss", ...) into a training step:
// forward, backward and update. Throws InputError with the break-down and what would make it
// fit when the program needs more than the memory limit. Where automatic recomputation of cheap
// operators alone does not make it fit, others are recomputed too, as few as are found to do.
Program compile_training(graph::Graph graph, const CompileOptions& options);

// As above for one stage of a pipeline, which receives and sends activations and gradients.
Program compile_stage(parallel::StageGraph stage, const CompileOptions& options);

// Compiles it for evaluation: forward only, with running statistics and without dropout. The
// state slots are those of `training`, at the same offsets and layouts, so that both programs
// run in one arena.
Program compile_evaluation(graph::Graph graph, const CompileOptions& options,
                           const Program& training);

// As above, for evaluation alone.
Program compile_evaluation(graph::Graph graph, const CompileOptions& options);

std::map<std::string, graph::Layout> layouts_of_parameters(const Program& program);

// A table of the break-down for people.
std::string describe(const MemoryBreakdown& breakdown);

}  // namespace millrace::compile
