#include "graph/margin_head.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "graph/operators/shapes.h"

namespace millrace::graph {

Attributes attributes_of(const MarginHeadOptions& options) {
  return {{"classes", options.classes},
          {"class_begin", options.class_begin},
          {"local_classes", options.local_classes > 0 ? options.local_classes : options.classes},
          {"margin_multiplier", options.multiplier},
          {"margin_addend", options.addend},
          {"margin_subtrahend", options.subtrahend},
          {"margin", static_cast<int64_t>(options.margin)},
          {"margin_strength", options.strength},
          {"filter", options.filter},
          {"scale", options.scale},
          {"exact_gradient", options.exact_gradient},
          {"sample_rate", options.sample_rate},
          {"head_momentum", static_cast<int64_t>(options.momentum)},
          {"divided", options.parallel != HeadParallel::dp},
          {"embedding_share", 1.0},
          {"cache_bytes", options.cache_bytes}};
}

HeadMargin head_margin_of(const Attributes& attributes) {
  return static_cast<HeadMargin>(attributes.integer("margin"));
}

ClassRange class_range_of(const Attributes& attributes) {
  return {attributes.integer("classes"), attributes.integer("class_begin"),
          attributes.integer("local_classes")};
}

int64_t sampled_classes(double sample_rate, int64_t local_classes) {
  const auto wanted = std::floor(sample_rate * static_cast<double>(local_classes) + 1e-6);
  return std::clamp<int64_t>(static_cast<int64_t>(wanted), 0, local_classes);
}

bool wants_lazy_updates(const Attributes& attributes) {
  return attributes.number("sample_rate") < 1 &&
         attributes.integer("head_momentum") == static_cast<int64_t>(HeadMomentum::lazy);
}

namespace {

// The most classes that a step can use.
int64_t most_classes(const Attributes& attributes, int64_t labels) {
  const int64_t local = attributes.integer("local_classes");
  return std::max(sampled_classes(attributes.number("sample_rate"), local),
                  std::min(labels, local));
}

}  // namespace

constexpr int64_t kSampleHeader = 4;

int64_t sample_elements(int64_t batch, int64_t labels) { return kSampleHeader + batch + labels; }

int64_t head_block_rows(int64_t batch, int64_t dimension) {
  constexpr int64_t kFloats = 160 * 1024;
  return std::clamp<int64_t>(kFloats / (2 * dimension + batch) / 16 * 16, 16, 256);
}

int64_t head_cache_blocks(int64_t cache_bytes, int64_t classes_in_use, int64_t batch,
                          int64_t dimension) {
  const int64_t rows = head_block_rows(batch, dimension);
  const int64_t blocks = (classes_in_use + rows - 1) / rows;
  const int64_t block_bytes = rows * batch * static_cast<int64_t>(sizeof(float));
  return std::max<int64_t>(1, std::min(blocks, cache_bytes / block_bytes));
}

}  // namespace millrace::graph

namespace millrace::graph::margin_head {
namespace {

void expect_range(const Inference& inference) {
  const ClassRange range = class_range_of(inference.op.attributes);
  if (range.local < 1 || range.begin < 0 || range.begin + range.local > range.classes) {
    fail_input("needs a part of {} classes but gets {} from {}", range.classes, range.local,
               range.begin);
  }
  if (range.classes > INT32_MAX) {
    fail_input("needs at most {} classes but gets {}", INT32_MAX, range.classes);
  }
  const double rate = inference.op.attributes.number("sample_rate");
  if (!(rate > 0 && rate <= 1)) {
    fail_input("needs a sample rate above 0 and up to 1 but gets {}", rate);
  }
}

// For these rows, by their own labels or by more. Returns how many labels it has room for.
int64_t expect_sample(const Inference& inference, size_t sample, int64_t rows) {
  const Shape& shape = inference.shape(sample);
  if (shape.size() != 1 || shape[0] < sample_elements(rows, rows)) {
    fail_input("needs a sample for {} rows but gets {}", rows, to_string(shape));
  }
  return shape[0] - sample_elements(rows, 0);
}

// The batch of embeddings.
int64_t expect_rows(const Inference& inference, size_t embeddings, size_t sample, size_t centres) {
  expect_range(inference);
  expect_matrix(inference, embeddings);
  const ClassRange range = class_range_of(inference.op.attributes);
  const int64_t batch = inference.shape(embeddings)[0];
  expect_shape(inference, centres, {range.local, inference.shape(embeddings)[1]},
               "a centre for each class,");
  expect_sample(inference, sample, batch);
  return batch;
}

// The sample is the input behind the embeddings.
int64_t most_classes(const Inference& inference, size_t embeddings) {
  const int64_t rows = inference.shape(embeddings)[0];
  return graph::most_classes(inference.op.attributes,
                             expect_sample(inference, embeddings + 1, rows));
}

TensorType products_type(const Inference& inference, size_t embeddings) {
  const Attributes& attributes = inference.op.attributes;
  const Shape& shape = inference.shape(embeddings);
  const int64_t used = most_classes(inference, embeddings);
  const int64_t blocks =
      head_cache_blocks(attributes.integer("cache_bytes"), used, shape[0], shape[1]);
  return {{blocks * head_block_rows(shape[0], shape[1]) * shape[0]}, DataType::f32};
}

std::vector<TensorType> infer_sample(const Inference& inference) {
  const bool of_step = inference.inputs.size() == 2;
  expect_inputs(inference, of_step ? 2 : 1);
  expect_range(inference);
  if (inference.shape(0).size() != 1) {
    fail_input("needs one label for each sample but gets {}", to_string(inference.shape(0)));
  }
  const int64_t batch = inference.shape(0)[0];
  expect_labels(inference, 0, batch);
  const int64_t labels = inference.shape(of_step ? 1 : 0).at(0);
  expect_labels(inference, of_step ? 1 : 0, labels);
  if (labels < batch) fail_input("needs the labels of its {} samples among {}", batch, labels);
  return {{{sample_elements(batch, labels)}, DataType::s32}};
}

// Behind the centres, what a lazy head reads even where it does not change it; `between` inputs
// come first.
void expect_lazy(const Inference& inference, size_t centres, size_t states, size_t between = 0) {
  if (!inference.op.attributes.flag("lazy")) return;
  const size_t current = centres + 1 + between + states;
  for (size_t i = centres + 1 + between; i < current; ++i) {
    expect_shape(inference, i, inference.shape(centres), "states like the centres,");
  }
  expect_shape(inference, current, {inference.shape(centres)[0]}, "an update for each centre,");
  expect_shape(inference, current + 1, {kHeadRates}, "learning rates");
}

// Inputs of a lazy head beside centres and states.
size_t clock_inputs(const Inference& inference) {
  return inference.op.attributes.flag("lazy") ? 2 : 0;
}

// Of operators whose type does not tell.
size_t lazy_states(const Inference& inference) {
  if (!inference.op.attributes.flag("lazy")) return 0;
  return static_cast<size_t>(inference.op.attributes.integer("states"));
}

size_t lazy_inputs(const Inference& inference) {
  return lazy_states(inference) + clock_inputs(inference);
}

bool has_margins(const Attributes& attributes) {
  return head_margin_of(attributes) != HeadMargin::fixed;
}

// Embeddings, sample, centres, perhaps margins of the samples, and what a lazy head reads.
std::vector<TensorType> infer_statistics(const Inference& inference) {
  const size_t margins = has_margins(inference.op.attributes) ? 1 : 0;
  expect_inputs(inference, 3 + margins + lazy_inputs(inference));
  expect_lazy(inference, 2, lazy_states(inference), margins);
  const int64_t batch = expect_rows(inference, 0, 1, 2);
  if (margins > 0) expect_shape(inference, 3, {batch, kSampleMargins}, "a margin for each sample,");
  return {{{batch, kHeadStatistics}, DataType::f32}, products_type(inference, 0)};
}

std::vector<TensorType> infer_update(const Inference& inference, size_t states) {
  expect_inputs(inference, 6 + states + clock_inputs(inference));
  expect_lazy(inference, 5, states);
  const int64_t batch = expect_rows(inference, 2, 3, 5);
  expect_shape(inference, 0, {batch, kHeadStatistics}, "the gradient of the statistics");
  expect_shape(inference, 1, {batch, kHeadStatistics}, "statistics");
  expect_shape(inference, 4, products_type(inference, 2).shape, "products");
  for (size_t i = 0; i < states; ++i) {
    expect_shape(inference, 6 + i, inference.shape(5), "states like the centres,");
  }
  return {inference.inputs[2]};
}

// Rows of a batch, or of all micro-batches of a step.
void expect_kept_rows(const Inference& inference, size_t first) {
  const int64_t rows = inference.shape(first)[0];
  expect_shape(inference, first, {rows, kHeadStatistics}, "the gradient of the statistics");
  expect_shape(inference, first + 1, {rows, kHeadStatistics}, "statistics");
  expect_matrix(inference, first + 2);
  expect_sample(inference, first + 3, rows);
}

// What a step keeps of its micro-batches, then the same of one of them.
std::vector<TensorType> infer_keep(const Inference& inference) {
  expect_inputs(inference, 8);
  expect_kept_rows(inference, 0);
  expect_kept_rows(inference, 4);
  if (inference.shape(0)[0] % inference.shape(4)[0] != 0) {
    fail_input("needs room for whole micro-batches of {} samples but gets {}",
               inference.shape(4)[0], inference.shape(0)[0]);
  }
  return {};
}

// Of the gradient of the centres.
std::vector<TensorType> infer_squares(const Inference& inference) {
  expect_inputs(inference, 5 + lazy_inputs(inference));
  expect_lazy(inference, 4, lazy_states(inference));
  expect_kept_rows(inference, 0);
  expect_rows(inference, 2, 3, 4);
  return {{{1}, DataType::f32}};
}

std::vector<TensorType> infer_gradient(const Inference& inference) {
  return infer_update(inference, lazy_states(inference));
}

// Gradient of the statistics, statistics, embeddings, sample, centres, states, then perhaps
// the clock of a lazy head, a clip scale and what overflow_check wrote.
template <size_t states>
std::vector<TensorType> infer_step(const Inference& inference) {
  const bool has_clip = inference.op.attributes.flag("has_clip");
  const bool has_skip = inference.op.attributes.flag("has_skip");
  const size_t behind = 5 + states + clock_inputs(inference);
  const size_t count = behind + (has_clip ? 1 : 0) + (has_skip ? 1 : 0);
  expect_inputs(inference, count);
  expect_kept_rows(inference, 0);
  expect_rows(inference, 2, 3, 4);
  expect_lazy(inference, 4, states);
  for (size_t i = 0; i < states; ++i) {
    expect_shape(inference, 5 + i, inference.shape(4), "states like the centres,");
  }
  if (has_clip) expect_shape(inference, behind, {1}, "a clip scale");
  if (has_skip) expect_shape(inference, count - 1, {2}, "whether to skip");
  return {};
}

template <size_t states>
std::vector<TensorType> infer_update_with(const Inference& inference) {
  return infer_update(inference, states);
}

void expect_shards(const Inference& inference, size_t statistics, int64_t batch) {
  const Shape& shape = inference.shape(statistics);
  if (shape.size() != 2 || shape[1] != kHeadStatistics || batch < 1 || shape[0] % batch != 0) {
    fail_input("needs {} statistics for each of {} samples, perhaps several times, but gets {}",
               kHeadStatistics, batch, to_string(shape));
  }
}

// The statistics of this part, then those of all parts. The loss; of each sample the logarithm of
// the softmax's sum and the probability of all other classes; how many samples have their own class
// first.
std::vector<TensorType> infer_loss(const Inference& inference) {
  expect_inputs(inference, 2);
  expect_matrix(inference, 0);
  const int64_t batch = inference.shape(0)[0];
  expect_shape(inference, 0, {batch, kHeadStatistics}, "statistics");
  expect_shards(inference, 1, batch);
  return {{{1}, DataType::f32}, {{batch, 2}, DataType::f32}, {{1}, DataType::f32}};
}

std::vector<TensorType> infer_loss_backward(const Inference& inference) {
  expect_inputs(inference, 3);
  expect_shape(inference, 0, {1}, "the gradient of a loss");
  expect_matrix(inference, 2);
  expect_shape(inference, 2, {inference.shape(2)[0], 2}, "a softmax for each sample,");
  expect_shards(inference, 1, inference.shape(2)[0]);
  return {inference.inputs[1]};
}

// The cosine of each sample and its own centre; 0 if the class is in another part.
std::vector<TensorType> infer_cosines(const Inference& inference) {
  expect_inputs(inference, 3);
  return {{{expect_rows(inference, 0, 1, 2)}, DataType::f32}};
}

// A number for each sample: the length of its embedding, or the cosine to its own centre. Then
// perhaps what is known of earlier steps.
std::vector<TensorType> infer_margins(const Inference& inference) {
  const bool runs = inference.op.type == "margin_head_running_margins";
  expect_inputs(inference, runs ? 2 : 1);
  expect_shape(inference, 0, {inference.shape(0)[0]}, "a number for each sample,");
  if (runs) expect_shape(inference, 1, {2}, "what is known of earlier steps,");
  return {{{inference.shape(0)[0], kSampleMargins}, DataType::f32}};
}

std::vector<TensorType> infer_margins_backward(const Inference& inference) {
  expect_inputs(inference, 2);
  expect_shape(inference, 0, {inference.shape(1)[0], kSampleMargins}, "a margin for each sample,");
  return {inference.inputs[1]};
}

// Of the gradient of the statistics, and of themselves.
std::vector<TensorType> infer_margin_gradient(const Inference& inference) {
  expect_inputs(inference, 2);
  const int64_t batch = inference.shape(0)[0];
  expect_shape(inference, 0, {batch, kHeadStatistics}, "the gradient of the statistics");
  expect_shape(inference, 1, {batch, kHeadStatistics}, "statistics");
  return {{{batch, kSampleMargins}, DataType::f32}};
}

void differentiate_margins(Differentiation& d) {
  if (!d.needs_gradient(0)) return;
  const OperatorId added = d.apply("margin_head_margins_backward",
                                   {d.output_gradient(0), d.input(0)}, d.op().attributes);
  d.set_input_gradient(0, d.result(added));
}

// Margins that follow from earlier steps or from cosines are taken as given.
void differentiate_nothing(Differentiation&) {}

void differentiate_loss(Differentiation& d) {
  const OperatorId added =
      d.apply("margin_head_loss_backward", {d.output_gradient(0), d.input(0), d.output(1)},
              d.op().attributes);
  d.set_input_gradient(0, d.result(added));
}

// The centres get no gradient: the operator updates them itself, by the settings that the
// optimizer pass fills in.
void differentiate_statistics(Differentiation& d) {
  const OperatorId added =
      d.apply("margin_head_update",
              {d.output_gradient(0), d.output(0), d.input(0), d.input(1), d.output(1), d.input(2)},
              d.op().attributes);
  d.set_input_gradient(0, d.result(added));
  if (head_margin_of(d.op().attributes) != HeadMargin::magnitude) return;
  const OperatorId of_margins = d.apply("margin_head_margin_gradient",
                                        {d.output_gradient(0), d.output(0)}, d.op().attributes);
  d.set_input_gradient(3, d.result(of_margins));
}

// Of several devices each has some classes and sees the whole batch, or all do the same.
std::vector<ShardingSignature> statistics_shardings(const Inference& inference) {
  if (!inference.op.attributes.flag("divided")) return {};
  ShardingSignature way = {{broadcast(), broadcast(), split(0)}, {broadcast(), broadcast()}};
  if (has_margins(inference.op.attributes)) way.inputs.push_back(broadcast());
  return {way};
}

// The others have zeros.
std::vector<ShardingSignature> cosines_shardings(const Inference& inference) {
  if (!inference.op.attributes.flag("divided")) return {};
  return {{{broadcast(), broadcast(), split(0)}, {partial()}}};
}

// Each device has a share of the loss, and the whole gradient of its own statistics.
std::vector<ShardingSignature> loss_shardings(const Inference&) {
  return {{{broadcast(), broadcast()}, {partial(), broadcast(), partial()}}};
}

double products(const Inference& inference, size_t embeddings) {
  const Shape& shape = inference.shape(embeddings);
  const int64_t used = most_classes(inference, embeddings);
  return 2.0 * static_cast<double>(used) * static_cast<double>(shape[0]) *
         static_cast<double>(shape[1]);
}

double count_statistics(const Inference& inference) { return products(inference, 0); }
double count_update(const Inference& inference) { return 2 * products(inference, 2); }
double count_gradient(const Inference& inference) { return products(inference, 2); }

}  // namespace

std::vector<OperatorDefinition> operators() {
  std::vector<OperatorDefinition> all = {
      {.type = "margin_head_sample", .infer = infer_sample, .samples_classes = true},
      {.type = "margin_head_statistics",
       .infer = infer_statistics,
       .differentiate = differentiate_statistics,
       .shardings = statistics_shardings,
       .arithmetic = count_statistics},
      {.type = "margin_head_cosines",
       .infer = infer_cosines,
       .differentiate = differentiate_nothing,
       .shardings = cosines_shardings},
      {.type = "margin_head_margins",
       .infer = infer_margins,
       .differentiate = differentiate_margins},
      {.type = "margin_head_running_margins",
       .infer = infer_margins,
       .differentiate = differentiate_nothing,
       .mutated_inputs = {1}},
      {.type = "margin_head_margins_backward",
       .infer = infer_margins_backward,
       .gradient = OperatorDefinition::Gradient::of_inputs},
      {.type = "margin_head_margin_gradient", .infer = infer_margin_gradient},
      {.type = "margin_head_loss",
       .infer = infer_loss,
       .differentiate = differentiate_loss,
       .averages_samples = true,
       .shardings = loss_shardings},
      {.type = "margin_head_loss_backward",
       .infer = infer_loss_backward,
       .gradient = OperatorDefinition::Gradient::of_inputs},
      {.type = "margin_head_update",
       .infer = infer_update_with<0>,
       .takes_rule = true,
       .mutated_inputs = {5},
       .arithmetic = count_update},
      {.type = "margin_head_update_momentum",
       .infer = infer_update_with<1>,
       .mutated_inputs = {5, 6},
       .arithmetic = count_update},
      {.type = "margin_head_update_adamw",
       .infer = infer_update_with<2>,
       .mutated_inputs = {5, 6, 7},
       .arithmetic = count_update},
      {.type = "margin_head_gradient", .infer = infer_gradient, .arithmetic = count_gradient},
      {.type = "margin_head_squares", .infer = infer_squares, .arithmetic = count_update},
      {.type = "margin_head_keep", .infer = infer_keep, .mutated_inputs = {0, 1, 2, 3}},
      {.type = "margin_head_step",
       .infer = infer_step<0>,
       .mutated_inputs = {4},
       .arithmetic = count_update},
      {.type = "margin_head_step_momentum",
       .infer = infer_step<1>,
       .mutated_inputs = {4, 5},
       .arithmetic = count_update},
      {.type = "margin_head_step_adamw",
       .infer = infer_step<2>,
       .mutated_inputs = {4, 5, 6},
       .arithmetic = count_update}};
  for (OperatorDefinition& definition : all) definition.is_head = true;
  return all;
}

}  // namespace millrace::graph::margin_head
