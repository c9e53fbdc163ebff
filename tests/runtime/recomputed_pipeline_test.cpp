// Stages that run forward operators a second time train to the same bits as stages that keep all.
#include <gtest/gtest.h>

#include "../parallel/networks.h"
#include "models/models.h"
#include "native_bf16.h"
#include "pipeline.h"

namespace millrace::testing {
namespace {

constexpr int kSteps = 3;

constexpr parallel::ScheduleKind kSchedules[] = {
    parallel::ScheduleKind::gpipe,       parallel::ScheduleKind::one_f_one_b_flush,
    parallel::ScheduleKind::zero_bubble, parallel::ScheduleKind::one_f_one_b,
    parallel::ScheduleKind::ssp,         parallel::ScheduleKind::two_bw};

int64_t arena_of(const TestPipeline& pipeline) {
  int64_t bytes = 0;
  for (const compile::Program* program : pipeline.programs()) bytes += program->arena_bytes;
  return bytes;
}

int costly_in(const TestPipeline& pipeline) {
  int count = 0;
  for (const compile::Program* program : pipeline.programs()) count += program->recomputed_costly;
  return count;
}

// Returns how many operators that are not cheap ran again.
int expect_as_kept(PipelineSpec spec) {
  SCOPED_TRACE(std::string(parallel::name_of(spec.schedule)) + " over " +
               std::to_string(spec.devices.size()) + " stages");
  spec.recompute = passes::RecomputePolicy::none;
  TestPipeline kept(spec);
  spec.recompute = passes::RecomputePolicy::all;
  TestPipeline again(spec);
  EXPECT_LE(arena_of(again), arena_of(kept));
  EXPECT_EQ(costly_in(kept), 0);
  kept.train();
  again.train();
  EXPECT_EQ(again.losses(), kept.losses());
  EXPECT_EQ(again.weights(), kept.weights());
  return costly_in(again);
}

PipelineSpec pipeline_of(const graph::Graph& network, std::vector<std::vector<int>> devices,
                         parallel::ScheduleKind kind) {
  const bool each_updates =
      kind == parallel::ScheduleKind::one_f_one_b || kind == parallel::ScheduleKind::ssp;
  return spec_of(network, std::move(devices), kind, each_updates ? 1 : 4, kSteps);
}

TEST(RecomputedPipeline, EveryScheduleGivesTheSameBits) {
  int costly = 0;
  for (const parallel::ScheduleKind kind : kSchedules) {
    costly += expect_as_kept(pipeline_of(alexnet_like(8), {{0}, {1}}, kind));
    costly += expect_as_kept(pipeline_of(vgg_like(8), {{0}, {1}, {2}}, kind));
    costly += expect_as_kept(pipeline_of(resnet_like(8), {{0}, {1}, {2}}, kind));
  }
  EXPECT_GT(costly, 20);
}

TEST(RecomputedPipeline, ReplicasGiveTheSameBits) {
  EXPECT_GT(
      expect_as_kept(pipeline_of(resnet_like(8), {{0, 1}, {2}}, parallel::ScheduleKind::gpipe)), 0);
  PipelineSpec spec = pipeline_of(vgg_like(8), {{0, 1}, {2}}, parallel::ScheduleKind::ssp);
  spec.round_robin = true;
  EXPECT_GT(expect_as_kept(spec), 0);
}

// Tensors that are of 16 bits in the forward pass, too, are made again as they were.
TEST(RecomputedPipeline, NativeBf16GivesTheSameBits) {
  if (runtime::refuses_native_bf16()) return;
  PipelineSpec spec =
      pipeline_of(resnet_like(8), {{0}, {1}}, parallel::ScheduleKind::one_f_one_b_flush);
  spec.precision = {.type = graph::DataType::bf16,
                    .arithmetic = passes::PrecisionSettings::Arithmetic::native};
  EXPECT_GT(expect_as_kept(spec), 0);
}

// What is kept was rounded, what is made from it again is not: close, in less memory.
TEST(RecomputedPipeline, Bf16StorageIsAsCloseToFloat32) {
  models::ModelOptions options = models::default_options("fashion_cnn");
  options.batch = 16;
  const graph::Graph network = models::build_model("fashion_cnn", options);
  PipelineSpec spec = pipeline_of(network, {{0}, {1}}, parallel::ScheduleKind::gpipe);
  TestPipeline wide(spec);
  wide.train();
  spec.precision = {.type = graph::DataType::bf16,
                    .arithmetic = passes::PrecisionSettings::Arithmetic::storage};
  double distances[2];
  for (const passes::RecomputePolicy policy :
       {passes::RecomputePolicy::none, passes::RecomputePolicy::all}) {
    spec.recompute = policy;
    TestPipeline stored(spec);
    stored.train();
    const bool all = policy == passes::RecomputePolicy::all;
    distances[all] = distance(stored.weights(), wide.weights());
    EXPECT_EQ(costly_in(stored) > 0, all);
  }
  EXPECT_GT(distances[0], 1e-7);
  EXPECT_LT(distances[1], 2 * distances[0]);
}

}  // namespace
}  // namespace millrace::testing
