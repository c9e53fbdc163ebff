// Recomputation in finished programs: what it takes off the arena, and when it is used.
#include <gtest/gtest.h>

#include "base/error.h"
#include "compile/compiler.h"
#include "models/models.h"
#include "parallel/partition.h"

namespace millrace::compile {
namespace {

CompileOptions options_for(passes::RecomputePolicy policy, int64_t limit = 0) {
  CompileOptions options;
  options.kernels.convolution = kernels::ConvolutionAlgorithm::direct;
  options.recompute = policy;
  options.memory_limit = limit;
  return options;
}

graph::Graph model(const std::string& name, int64_t batch, int64_t image = 224) {
  models::ModelOptions options = models::default_options(name);
  options.batch = batch;
  options.image = image;
  return models::build_model(name, options);
}

// The first of two stages, two mini-batches under way, each with its version of the weights.
Program first_stage_of_vgg16(CompileOptions options) {
  const graph::Graph network = model("vgg16", 32);
  const std::vector<int> stages = parallel::assign_by_share(network, {11, 7});
  const parallel::RouteRequest request = {.devices = {{0}, {1}},
                                          .edges = parallel::edges_between(network, stages),
                                          .channels = {{0, 1, 2}, {1, 0, 2}}};
  options.shape = {.phasing = Phasing::mini_batches,
                   .slots = 2,
                   .versions = 2,
                   .channels = parallel::ends_of(parallel::routes_between(request), 0, 0)};
  return compile_stage(parallel::cut(network, stages, 0), options);
}

TEST(RecomputedProgram, TheFirstStageOfVgg16TakesLess) {
  const auto mebibytes = [](passes::RecomputePolicy policy) {
    const Program program = first_stage_of_vgg16(options_for(policy));
    EXPECT_EQ(program.breakdown.total(), program.arena_bytes);
    return program.arena_bytes >> 20;
  };
  EXPECT_GT(mebibytes(passes::RecomputePolicy::none), 3400);
  EXPECT_LE(mebibytes(passes::RecomputePolicy::all), 3000);
}

TEST(RecomputedProgram, ALimitIsMetWithNoMoreThanItTakes) {
  const Program kept = first_stage_of_vgg16(options_for(passes::RecomputePolicy::automatic));
  const Program least = first_stage_of_vgg16(options_for(passes::RecomputePolicy::all));
  EXPECT_EQ(kept.recomputed_costly, 0);
  int before = least.recomputed_costly;
  for (const int part : {1, 3}) {
    const int64_t limit = least.arena_bytes + (kept.arena_bytes - least.arena_bytes) * part / 4;
    const Program program =
        first_stage_of_vgg16(options_for(passes::RecomputePolicy::automatic, limit));
    EXPECT_LE(program.arena_bytes, limit);
    EXPECT_GT(program.recomputed_costly, 0);
    EXPECT_LE(program.recomputed_costly, before);
    before = program.recomputed_costly;
  }
  EXPECT_LT(before, least.recomputed_costly);
  const Program roomy =
      first_stage_of_vgg16(options_for(passes::RecomputePolicy::automatic, kept.arena_bytes));
  EXPECT_EQ(roomy.recomputed_costly, 0);
  EXPECT_THROW(first_stage_of_vgg16(
                   options_for(passes::RecomputePolicy::automatic, least.arena_bytes - (1 << 20))),
               InputError);
}

TEST(RecomputedProgram, WholeNetworksTakeLess) {
  for (const char* name : {"vgg16", "resnet50"}) {
    const Program cheap =
        compile_training(model(name, 16), options_for(passes::RecomputePolicy::automatic));
    const Program any =
        compile_training(model(name, 16), options_for(passes::RecomputePolicy::all));
    EXPECT_EQ(any.breakdown.total(), any.arena_bytes);
    EXPECT_LT(any.arena_bytes, cheap.arena_bytes) << name;
    EXPECT_GT(any.recomputed_costly, 0) << name;
  }
}

}  // namespace
}  // namespace millrace::compile
