#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "graph/margin_head.h"
#include "graph/operator_definition.h"

namespace millrace::graph {
namespace {

using Integers = Attributes::Integers;
using testing::HasSubstr;

struct Case {
  std::string type;
  std::vector<TensorType> inputs;
  Attributes attributes;
  std::vector<TensorType> outputs;
};

struct BadCase {
  std::string type;
  std::vector<TensorType> inputs;
  Attributes attributes;
  std::string sentence;
};

TensorType f32(Shape shape) { return {std::move(shape), DataType::f32}; }
TensorType s32(Shape shape) { return {std::move(shape), DataType::s32}; }
TensorType u8(Shape shape) { return {std::move(shape), DataType::u8}; }

std::vector<TensorType> infer(const std::string& type, std::vector<TensorType> inputs,
                              Attributes attributes) {
  const Operator op = {type, "layer", {}, {}, std::move(attributes), Phase::forward};
  return definition_of(type).infer({op, std::move(inputs)});
}

Attributes convolution(Integers stride, Integers padding, Integers dilation, int64_t groups) {
  return {{"stride", stride}, {"padding", padding}, {"dilation", dilation}, {"groups", groups}};
}

Attributes with(Attributes attributes, const std::string& name, Attributes::Value value) {
  attributes.set(name, std::move(value));
  return attributes;
}

Attributes pool(int64_t kernel, int64_t stride, int64_t padding) {
  return {{"kernel", Integers{kernel, kernel}},
          {"stride", Integers{stride, stride}},
          {"padding", Integers{padding, padding}}};
}

Attributes head(double rate) {
  return {{"classes", int64_t{1000}},
          {"class_begin", int64_t{100}},
          {"local_classes", int64_t{600}},
          {"sample_rate", rate},
          {"margin", static_cast<int64_t>(HeadMargin::fixed)},
          {"cache_bytes", int64_t{1} << 20}};
}

// Twelve samples of dimension 16, 600 classes: three blocks of 256 rows.
std::vector<Case> head_cases() {
  const TensorType e = f32({12, 16});
  const TensorType w = {{600, 16}, DataType::bf16};
  const TensorType s = f32({12, 7});
  const TensorType margins = f32({12, 3});
  const TensorType products = f32({3 * 256 * 12});
  const TensorType few = f32({256 * 12});
  return {
      {"margin_head_sample", {s32({12})}, head(1), {s32({28})}},
      {"margin_head_sample", {s32({12})}, head(0.1), {s32({28})}},
      {"margin_head_sample", {s32({12})}, head(0.001), {s32({28})}},
      {"margin_head_statistics", {e, s32({28}), w}, head(1), {s, products}},
      {"margin_head_statistics", {e, s32({28}), w}, head(0.1), {s, few}},
      {"margin_head_statistics",
       {e, s32({28}), w},
       with(head(1), "cache_bytes", int64_t{1}),
       {s, few}},
      {"margin_head_statistics",
       {e, s32({28}), w, margins},
       with(head(1), "margin", static_cast<int64_t>(HeadMargin::magnitude)),
       {s, products}},
      {"margin_head_cosines", {e, s32({28}), w}, head(1), {f32({12})}},
      {"margin_head_margins", {f32({12})}, head(1), {margins}},
      {"margin_head_running_margins", {f32({12}), f32({2})}, head(1), {margins}},
      {"margin_head_margins_backward", {margins, f32({12})}, head(1), {f32({12})}},
      {"margin_head_margin_gradient", {s, s}, head(1), {margins}},
      {"row_norm", {e}, {}, {f32({12})}},
      {"row_norm_backward", {f32({12}), e, f32({12})}, {}, {e}},
      {"margin_head_loss", {s, f32({36, 7})}, {}, {f32({1}), f32({12, 2}), f32({1})}},
      {"margin_head_loss_backward", {f32({1}), s, f32({12, 2})}, {}, {s}},
      {"margin_head_update", {s, s, e, s32({28}), products, w}, head(1), {e}},
      {"margin_head_update_momentum", {s, s, e, s32({28}), products, w, w}, head(1), {e}},
      {"margin_head_update_adamw", {s, s, e, s32({28}), few, w, w, w}, head(0.1), {e}},
      {"margin_head_gradient", {s, s, e, s32({28}), products, w}, head(1), {e}},
      {"margin_head_squares", {s, s, e, s32({28}), w}, head(1), {f32({1})}},
      {"margin_head_keep",
       {f32({24, 7}), f32({24, 7}), f32({24, 16}), s32({52}), s, s, e, s32({28})},
       {},
       {}},
      {"margin_head_step", {s, s, e, s32({28}), w}, head(0.1), {}},
      {"margin_head_step_momentum",
       {s, s, e, s32({28}), w, w, f32({1}), f32({2})},
       with(with(head(1), "has_clip", true), "has_skip", true),
       {}},
      {"margin_head_step_adamw", {s, s, e, s32({28}), w, w, w}, head(1), {}},
  };
}

Attributes member(int64_t number, int64_t members) {
  return {{"member", number}, {"members", members}};
}

Attributes part(int64_t number, int64_t members, int64_t axis, int64_t whole) {
  return with(with(member(number, members), "axis", axis), "whole", whole);
}

std::vector<Case> good_cases() {
  const TensorType x = f32({2, 6, 9, 11});
  const TensorType c = f32({6});
  const TensorType factors = f32({2, 6, 1, 1});
  const Attributes plain = convolution({2, 1}, {1, 0}, {1, 2}, 1);
  const Attributes grouped = convolution({1, 1}, {1, 1}, {1, 1}, 3);
  const Attributes smooth = {{"label_smoothing", 0.1}};
  const Attributes norm = {{"epsilon", 1e-5}, {"momentum", 0.1}};
  const Attributes shared_norm = with(norm, "counts", Integers{4, 5});
  const Attributes classes = {
      {"class_begin", int64_t{3}}, {"classes", int64_t{10}}, {"members", int64_t{3}}};
  const Shape xs = x.shape;
  std::vector<Case> cases = {
      {"add", {x, x}, {}, {x}},
      {"add_relu_backward", {x, x, x}, {}, {x}},
      {"top_k", {f32({4, 10}), s32({4})}, {{"k", int64_t{5}}}, {f32({1})}},
      {"average_pool", {x}, pool(3, 2, 1), {f32({2, 6, 5, 6})}},
      {"average_pool_backward", {f32({2, 6, 5, 6})}, with(pool(3, 2, 1), "input_shape", xs), {x}},
      {"global_average_pool", {x}, {}, {f32({2, 6, 1, 1})}},
      {"global_average_pool_backward", {f32({2, 6, 1, 1})}, {{"input_shape", xs}}, {x}},
      {"adaptive_average_pool", {x}, {{"output", Integers{4, 7}}}, {f32({2, 6, 4, 7})}},
      {"adaptive_average_pool_backward",
       {f32({2, 6, 4, 7})},
       {{"output", Integers{4, 7}}, {"input_shape", xs}},
       {x}},
      {"batch_norm", {x, c, c, c, c}, norm, {x, c, c}},
      {"batch_norm", {x, c, c, c, c, x}, with(norm, "residual", true), {x, c, c}},
      {"normalised_convolution",
       {x, f32({4, 6, 3, 3}), f32({4}), f32({4}), f32({4}), f32({4})},
       with(plain, "epsilon", 1e-5),
       {f32({2, 4, 5, 7})}},
      {"normalised_convolution",
       {x, f32({6, 6, 1, 1}), c, c, c, c, x},
       with(with(convolution({1, 1}, {0, 0}, {1, 1}, 1), "epsilon", 1e-5), "residual", true),
       {x}},
      {"batch_norm_apply", {x, c, c, c, c}, norm, {x}},
      {"batch_norm_apply", {x, c, c, c, c, x}, with(norm, "residual", true), {x}},
      {"batch_norm_backward", {x, x, c, c, c, c}, {{"relu", true}}, {x, c, c}},
      {"concat", {x, f32({2, 1, 9, 11})}, {{"axis", int64_t{1}}}, {f32({2, 7, 9, 11})}},
      {"slice",
       {x},
       {{"axis", int64_t{1}}, {"begin", int64_t{2}}, {"end", int64_t{5}}},
       {f32({2, 3, 9, 11})}},
      {"convolution", {x, f32({4, 6, 3, 5}), f32({4})}, plain, {f32({2, 4, 5, 3})}},
      {"convolution", {x, f32({9, 2, 3, 3})}, grouped, {f32({2, 9, 9, 11})}},
      {"convolution_backward_data",
       {f32({2, 4, 5, 3}), f32({4, 6, 3, 5})},
       with(plain, "input_shape", xs),
       {x}},
      {"convolution_backward_weights",
       {x, f32({2, 4, 5, 3})},
       with(with(plain, "kernel", Integers{3, 5}), "bias", true),
       {f32({4, 6, 3, 5}), f32({4})}},
      {"convolution_backward_weights",
       {x, f32({2, 9, 9, 11})},
       with(grouped, "kernel", Integers{3, 3}),
       {f32({9, 2, 3, 3})}},
      {"batch_norm_statistics", {x}, {}, {f32({12})}},
      {"batch_norm_synchronised", {x, c, c, c, c, f32({24})}, shared_norm, {x, c, c}},
      {"batch_norm_synchronised",
       {x, c, c, c, c, f32({24}), x},
       with(shared_norm, "residual", true),
       {x, c, c}},
      {"batch_norm_backward_sums", {x, x, c, c, c, c}, {}, {f32({12}), c, c}},
      {"batch_norm_backward_apply", {x, x, c, c, c, c, f32({12})}, {{"count", int64_t{9}}}, {x}},
      {"all_reduce", {x}, member(1, 3), {x}},
      {"share_partial", {x}, member(1, 3), {x}},
      {"all_gather", {x}, part(1, 3, 1, 17), {f32({2, 17, 9, 11})}},
      {"reduce_scatter", {x}, part(2, 4, 3, 11), {f32({2, 6, 9, 3})}},
      {"pad_slice",
       {x},
       {{"axis", int64_t{1}}, {"begin", int64_t{3}}, {"whole", int64_t{9}}},
       {f32({2, 9, 9, 11})}},
      {"softmax_statistics", {f32({4, 3}), s32({4})}, classes, {f32({4, 4})}},
      {"split_softmax_loss",
       {f32({4, 3}), s32({4}), f32({12, 4})},
       with(classes, "label_smoothing", 0.1),
       {f32({1}), f32({4, 2})}},
      {"split_softmax_backward",
       {f32({1}), f32({4, 3}), s32({4}), f32({4, 2})},
       classes,
       {f32({4, 3})}},
      {"split_rank", {f32({4, 3}), s32({4}), f32({12, 4})}, classes, {f32({4})}},
      {"rank_hits", {f32({4})}, {{"k", int64_t{5}}}, {f32({1})}},
      {"dropout", {x}, {{"rate", 0.5}, {"stream", int64_t{7}}}, {x}},
      {"dropout_backward", {x}, {{"rate", 0.5}, {"stream", int64_t{7}}}, {x}},
      {"accumulate", {x, x, x}, {}, {}},
      {"exchange_wait", {}, {{"ticket", int64_t{3}}}, {}},
      {"gradient_reduce_start",
       {x, c, x, c},
       {{"tensors", int64_t{2}}, {"staging", int64_t{1200}}, {"ticket", int64_t{0}}},
       {x, c, f32({1200})}},
      {"gradient_reduce_start",
       {x, x},
       {{"tensors", int64_t{1}}, {"staging", int64_t{0}}, {"ticket", int64_t{0}}},
       {x}},
      {"gradient_reduce_wait", {x, c, f32({1200})}, {{"tensors", int64_t{2}}}, {x, c}},
      {"parameter_gather_start", {x}, {{"ticket", int64_t{0}}}, {}},
      {"fill", {}, {{"shape", Integers{1}}, {"value", 1.0}}, {f32({1})}},
      {"flatten", {x}, {}, {f32({2, 594})}},
      {"reshape", {f32({2, 594})}, {{"shape", xs}}, {x}},
      {"l2_normalize", {f32({4, 8})}, {{"epsilon", 1e-12}}, {f32({4, 8}), f32({4})}},
      {"l2_normalize_backward", {f32({4, 8}), f32({4, 8}), f32({4})}, {}, {f32({4, 8})}},
      {"linear", {f32({4, 8}), f32({3, 8}), f32({3})}, {}, {f32({4, 3})}},
      {"linear_backward_data", {f32({4, 3}), f32({3, 8})}, {}, {f32({4, 8})}},
      {"linear_backward_weights",
       {f32({4, 8}), f32({4, 3})},
       {{"bias", true}},
       {f32({3, 8}), f32({3})}},
      {"linear_backward_weights", {f32({4, 8}), f32({4, 3})}, {{"bias", false}}, {f32({3, 8})}},
      {"max_pool", {x}, pool(3, 2, 0), {f32({2, 6, 4, 5}), u8({2, 6, 4, 5})}},
      {"max_pool_backward",
       {f32({2, 6, 4, 5}), u8({2, 6, 4, 5})},
       with(pool(3, 2, 0), "input_shape", xs),
       {x}},
      {"sgd_update", {x, x, x}, {}, {}},
      {"sgd_update", {x, x, x, f32({1})}, {{"has_clip", true}}, {}},
      {"sgd_plain_update", {x, x}, {}, {}},
      {"adamw_update", {x, x, x, x, f32({1})}, {}, {}},
      {"lars_update", {x, x, x}, {}, {}},
      {"rmsprop_update", {x, x, x, x}, {}, {}},
      {"rmsprop_plain_update", {x, x, x}, {}, {}},
      {"lamb_update", {x, x, x, x, f32({1})}, {}, {}},
      {"lamb_moments", {x, x, x, x, f32({1}), f32({4})}, {{"squares_at", int64_t{2}}}, {}},
      {"lars_update", {x, x, x, f32({4})}, {{"squares_at", int64_t{2}}}, {}},
      {"squares_of_each", {x, c}, {}, {f32({2})}},
      {"keep_squares", {f32({1}), f32({1})}, {}, {}},
      {"sum_of_squares", {x, c}, {}, {f32({1})}},
      {"clip_scale", {f32({1})}, {{"max_norm", 1.0}}, {f32({1})}},
      {"overflow_probe", {f32({1}), f32({4, 3})}, {}, {}},
      {"overflow_check",
       {f32({2}), x, c},
       {{"has_squares", false}, {"parameters", std::string("x,c")}},
       {}},
      {"prelu", {x, c}, {}, {x}},
      {"prelu_backward", {x, x, c}, {}, {x, c}},
      {"scale_channels", {x, factors}, {}, {x}},
      {"scale_channels_backward", {x, x, factors}, {}, {x, factors}},
      {"reorder", {x}, {}, {x}},
      {"cast", {x}, {{"to", static_cast<int64_t>(DataType::bf16)}}, {{x.shape, DataType::bf16}}},
      {"cast", {x}, {{"to", static_cast<int64_t>(DataType::f16)}}, {{x.shape, DataType::f16}}},
      {"cast", {{x.shape, DataType::bf16}}, {{"to", static_cast<int64_t>(DataType::f32)}}, {x}},
      {"softmax_cross_entropy", {f32({4, 10}), s32({4})}, smooth, {f32({1}), f32({4, 10})}},
      {"softmax_cross_entropy_backward",
       {f32({1}), f32({4, 10}), s32({4})},
       smooth,
       {f32({4, 10})}},
  };
  for (Case& entry : head_cases()) cases.push_back(std::move(entry));
  for (const char* type :
       {"relu", "relu6", "sigmoid", "tanh", "hardsigmoid", "hardswish", "silu"}) {
    cases.push_back({type, {x}, {}, {x}});
    cases.push_back({std::string(type) + "_backward", {x, x}, {}, {x}});
  }
  return cases;
}

TEST(Inference, GivesTheRightTypes) {
  for (const Case& c : good_cases()) {
    EXPECT_EQ(infer(c.type, c.inputs, c.attributes), c.outputs) << c.type;
  }
}

TEST(Inference, EveryTypeIsCoveredAndListedOnce) {
  std::set<std::string> covered;
  for (const Case& c : good_cases()) covered.insert(c.type);
  std::set<std::string> defined;
  for (const OperatorDefinition& definition : all_definitions()) {
    EXPECT_TRUE(defined.insert(std::string(definition.type)).second) << definition.type;
  }
  EXPECT_EQ(covered, defined);
}

TEST(Inference, WrongNumberOfInputsIsABug) {
  for (const Case& c : good_cases()) {
    if (c.type == "concat" || c.type == "sum_of_squares" || c.type == "squares_of_each" ||
        c.type == "overflow_check")
      continue;
    std::vector<TensorType> inputs = c.inputs;
    for (int i = 0; i < 3; ++i) inputs.push_back(f32({1}));
    EXPECT_THROW(infer(c.type, inputs, c.attributes), std::logic_error) << c.type;
  }
}

std::vector<BadCase> bad_cases() {
  const TensorType x = f32({2, 6, 5, 5});
  const TensorType c = f32({6});
  const Attributes one = convolution({1, 1}, {0, 0}, {1, 1}, 1);
  const Attributes smooth = {{"label_smoothing", 0.0}};
  const Attributes norm = {{"epsilon", 1e-5}, {"momentum", 0.1}};
  return {
      {"relu_backward", {x, c}, {}, "2x6x5x5 but gets 6"},
      {"add", {x, f32({2, 6, 4, 5})}, {}, "2x6x5x5 but gets 2x6x4x5"},
      {"add_relu_backward", {x, x, c}, {}, "but gets 6"},
      {"top_k", {f32({4, 3}), s32({4})}, {{"k", int64_t{5}}}, "k between 1 and 3 classes"},
      {"top_k", {f32({4, 3}), f32({4})}, {{"k", int64_t{1}}}, "needs s32 labels but gets f32"},
      {"average_pool", {x}, pool(7, 1, 0), "needs an image of at least 7x7 here but gets 5x5"},
      {"average_pool", {x}, pool(2, 0, 0), "a stride of at least 1 but gets 0"},
      {"global_average_pool", {c}, {}, "batch x channels x height x width) but gets 6"},
      {"adaptive_average_pool", {x}, {{"output", Integers{0, 1}}}, "output of at least 1"},
      {"average_pool_backward",
       {x},
       with(pool(2, 2, 0), "input_shape", Integers{2, 6, 5, 5}),
       "2x6x2x2 but gets 2x6x5x5"},
      {"batch_norm", {x, f32({5}), c, c, c}, norm, "each channel of shape 6 but gets 5"},
      {"batch_norm", {f32({1, 6, 1, 1}), c, c, c, c}, norm, "more than one value per channel"},
      {"batch_norm", {x, c, c, c, c, c}, with(norm, "residual", true), "a residual like"},
      {"batch_norm_backward", {x, c, c, c, c, c}, {}, "an input like its gradient"},
      {"concat", {x, f32({3, 6, 5, 5})}, {{"axis", int64_t{1}}}, "differ along axis 1 only"},
      {"concat", {x, x}, {{"axis", int64_t{4}}}, "an axis from 0 to 3 but gets 4"},
      {"slice",
       {x},
       {{"axis", int64_t{1}}, {"begin", int64_t{2}}, {"end", int64_t{7}}},
       "within 0..6 along axis 1 but gets 2..7"},
      {"convolution",
       {x, f32({8, 6, 7, 7})},
       one,
       "needs an image of at least 7x7 here but gets 5x5"},
      {"convolution",
       {x, f32({8, 6, 3, 3})},
       convolution({1, 1}, {1, 0}, {4, 4}, 1),
       "at least 7x9 here but gets 5x5"},
      {"convolution", {x, f32({8, 4, 3, 3})}, one, "an image of 4 channels"},
      {"convolution", {x, f32({8, 2, 3, 3})}, convolution({1, 1}, {0, 0}, {1, 1}, 4), "groups"},
      {"convolution", {x, f32({8, 6, 3, 3}), f32({7})}, one, "a bias of shape 8 but gets 7"},
      {"convolution", {f32({2, 6}), f32({8, 6, 3, 3})}, one, "needs images"},
      {"convolution_backward_data",
       {x, f32({6, 6, 3, 3})},
       with(one, "input_shape", Integers{2, 6, 5, 5}),
       "2x6x3x3 but gets 2x6x5x5"},
      {"convolution_backward_weights",
       {x, x},
       with(one, "kernel", Integers{3, 3}),
       "2x6x3x3 but gets 2x6x5x5"},
      {"margin_head_sample", {s32({4})}, head(0), "a sample rate above 0 and up to 1 but gets 0"},
      {"margin_head_sample", {f32({4})}, head(1), "needs s32 labels but gets f32"},
      {"margin_head_sample",
       {s32({4})},
       with(head(1), "class_begin", int64_t{500}),
       "a part of 1000 classes but gets 600 from 500"},
      {"margin_head_statistics",
       {f32({4, 8}), s32({12}), f32({500, 8})},
       head(1),
       "a centre for each class, of shape 600x8 but gets 500x8"},
      {"margin_head_loss", {f32({3, 7}), f32({7, 7})}, {}, "7 statistics for each of 3"},
      {"dropout", {x}, {{"rate", 1.0}}, "a rate from 0 to below 1 but gets 1"},
      {"all_reduce", {x}, member(3, 3), "a member below 3 members but gets 3"},
      {"all_gather", {x}, part(0, 2, 1, 14), "needs 7 rows along axis 1 but gets 6"},
      {"all_gather", {x}, part(0, 2, 4, 12), "an axis below 4 but gets 4"},
      {"reduce_scatter", {x}, part(0, 7, 1, 6), "at least 7 rows for 7 members"},
      {"pad_slice",
       {x},
       {{"axis", int64_t{1}}, {"begin", int64_t{4}}, {"whole", int64_t{9}}},
       "a place for 6 rows within 9 but gets 4"},
      {"softmax_statistics",
       {f32({4, 3}), s32({4})},
       {{"class_begin", int64_t{8}}, {"classes", int64_t{10}}},
       "a place for 3 classes among 10 but gets 8"},
      {"batch_norm_synchronised",
       {x, c, c, c, c, f32({12})},
       with(norm, "counts", Integers{4, 5}),
       "every member's statistics of shape 24 but gets 12"},
      {"fill", {}, {{"shape", Integers{0}}, {"value", 1.0}}, "positive extents"},
      {"reshape", {x}, {{"shape", Integers{2, 7}}}, "as many elements as 2x7"},
      {"l2_normalize", {x}, {{"epsilon", 1e-12}}, "flatten it first"},
      {"linear", {x, f32({3, 6})}, {}, "flatten it first"},
      {"linear", {f32({4, 8}), f32({3, 9})}, {}, "rows of 9 features here but gets 8"},
      {"linear_backward_data", {f32({4, 2}), f32({3, 8})}, {}, "rows of 3 features"},
      {"linear_backward_weights", {f32({4, 8}), f32({5, 3})}, {}, "4x3 but gets 5x3"},
      {"max_pool", {x}, pool(6, 1, 0), "needs an image of at least 6x6 here but gets 5x5"},
      {"max_pool", {x}, pool(2, 2, 2), "at most half the kernel (1) but gets 2"},
      {"max_pool", {f32({1, 1, 20, 20})}, pool(16, 1, 0), "at most 255 positions but gets 16x16"},
      {"max_pool_backward",
       {x, u8({2, 6, 5, 5})},
       with(pool(2, 2, 0), "input_shape", Integers{2, 6, 5, 5}),
       "2x6x2x2 but gets 2x6x5x5"},
      {"sgd_update", {x, x, c}, {}, "like the weights"},
      {"sgd_plain_update", {x, x, c}, {{"has_clip", true}}, "a clip scale of shape 1"},
      {"sum_of_squares", {}, {}, "at least one gradient"},
      {"clip_scale", {f32({1})}, {{"max_norm", 0.0}}, "above 0 but gets 0"},
      {"prelu", {x, f32({1})}, {}, "a slope for each channel"},
      {"softmax_cross_entropy", {f32({4, 3}), s32({5})}, smooth, "labels of shape 4 but gets 5"},
      {"softmax_cross_entropy",
       {f32({4, 3}), s32({4})},
       {{"label_smoothing", 1.5}},
       "from 0 to 1 but gets 1.5"},
      {"softmax_cross_entropy",
       {f32({4, 3}), s32({4})},
       with(smooth, "samples", int64_t{3}),
       "a mean over at least 4 samples but gets 3"},
  };
}

TEST(Inference, SaysWhatDoesNotFit) {
  for (const BadCase& c : bad_cases()) {
    try {
      infer(c.type, c.inputs, c.attributes);
      ADD_FAILURE() << c.type << " accepts what should read: " << c.sentence;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr(c.sentence)) << c.type;
    }
  }
}

double arithmetic(const std::string& type, std::vector<TensorType> inputs, Attributes attributes) {
  const Operator op = {type, "layer", {}, {}, std::move(attributes), Phase::forward};
  return definition_of(type).arithmetic({op, std::move(inputs)});
}

TEST(Arithmetic, CountsMultipliesAndAdds) {
  const Attributes grouped = convolution({1, 1}, {1, 1}, {1, 1}, 3);
  const double multiply_adds = 2.0 * (2 * 9 * 5 * 7) * (2 * 3 * 3);
  const TensorType x = f32({2, 6, 5, 7});
  const TensorType dy = f32({2, 9, 5, 7});
  const TensorType w = f32({9, 2, 3, 3});
  EXPECT_EQ(arithmetic("convolution", {x, w}, grouped), multiply_adds);
  EXPECT_EQ(arithmetic("convolution_backward_data", {dy, w}, grouped), multiply_adds);
  EXPECT_EQ(
      arithmetic("convolution_backward_weights", {x, dy}, with(grouped, "kernel", Integers{3, 3})),
      multiply_adds);
  EXPECT_EQ(arithmetic("linear", {f32({4, 8}), f32({3, 8})}, {}), 2.0 * 4 * 3 * 8);
  EXPECT_EQ(arithmetic("linear_backward_data", {f32({4, 3}), f32({3, 8})}, {}), 2.0 * 4 * 3 * 8);
  EXPECT_EQ(arithmetic("linear_backward_weights", {f32({4, 8}), f32({4, 3})}, {{"bias", false}}),
            2.0 * 4 * 3 * 8);
}

TEST(Arithmetic, NeverFailsOnWhatInferenceAccepts) {
  for (const Case& c : good_cases()) {
    if (definition_of(c.type).arithmetic == nullptr) continue;
    EXPECT_GE(arithmetic(c.type, c.inputs, c.attributes), 0) << c.type;
  }
}

}  // namespace
}  // namespace millrace::graph
