// How long the methods of convolution_problem.h take here.
#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>

#include "base/half.h"
#include "base/parallel.h"
#include "kernels/convolution_problem.h"
#include "kernels/depthwise/depthwise_convolution.h"
#include "kernels/panels/panel_convolution.h"
#include "kernels/support/conversion.h"
#include "kernels/winograd/tiled_convolution.h"

namespace millrace::kernels {
namespace {

// Measured runs of a method; no more than the fewest once all took this many seconds together.
constexpr int kFewestRounds = 3;
constexpr int kMostRounds = 20;

// Memory with values that are neither zero nor denormal.
dnnl::memory filled(const dnnl::memory::desc& desc) {
  dnnl::memory memory(desc, dnnl_engine());
  const auto value = [](size_t i) { return 0.01f * static_cast<float>(i % 17) - 0.08f; };
  if (desc.data.data_type == dnnl_bf16) {
    auto* halves = static_cast<uint16_t*>(memory.get_data_handle());
    for (size_t i = 0; i < desc.get_size() / sizeof(uint16_t); ++i) halves[i] = to_bf16(value(i));
    return memory;
  }
  auto* values = static_cast<float*>(memory.get_data_handle());
  for (size_t i = 0; i < desc.get_size() / sizeof(float); ++i) values[i] = value(i);
  return memory;
}

// A convolution with tensors of its own.
class Rehearsal {
 public:
  Rehearsal(const ConvolutionProblem& problem, const ConvolutionOffer& offer)
      : x_(filled(offer.descs.x)),
        y_(filled(offer.descs.y)),
        primitive_(offer.make()),
        stream_(dnnl_engine()) {
    const bool data = problem.direction == ConvolutionDirection::backward_data;
    const bool weights = problem.direction == ConvolutionDirection::backward_weights;
    arguments_ = {{data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, x_},
                  {weights ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, filled(offer.descs.w)},
                  {data || weights ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST, y_},
                  {DNNL_ARG_SCRATCHPAD, dnnl::memory(offer.scratchpad, dnnl_engine())}};
    if (problem.bias) {
      arguments_.emplace(weights ? DNNL_ARG_DIFF_BIAS : DNNL_ARG_BIAS, filled(offer.bias));
    }
  }

  const dnnl::memory& x() const { return x_; }
  const dnnl::memory& y() const { return y_; }

  void run() {
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  dnnl::memory x_;
  dnnl::memory y_;
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

// All parts' images in bf16, beside the float32 copy of one part.
class StoredImages {
 public:
  StoredImages(const dnnl::memory& copy, int64_t parts)
      : copy_(static_cast<float*>(copy.get_data_handle())),
        count_(copy.get_desc().get_size() / sizeof(float)),
        halves_(count_ * static_cast<size_t>(parts), to_bf16(0.01f)) {}

  void read(int64_t part) { widen(graph::DataType::bf16, stored(part), count(), copy_); }
  void write(int64_t part) { narrow(graph::DataType::bf16, copy_, count(), stored(part)); }

 private:
  int64_t count() const { return static_cast<int64_t>(count_); }
  std::byte* stored(int64_t part) {
    return reinterpret_cast<std::byte*>(halves_.data() + static_cast<size_t>(part) * count_);
  }

  float* copy_;
  size_t count_;
  std::vector<uint16_t> halves_;
};

// A run of the method, with everything it needs; empty if it cannot serve the problem.
std::function<void()> rehearse(const ConvolutionProblem& problem, ConvolutionMethod method) {
  const auto offer = offer_convolution(problem, method, any_descs(problem), nullptr);
  if (!offer) return {};
  return [rehearsal = std::make_shared<Rehearsal>(problem, *offer)] { rehearsal->run(); };
}

std::function<void()> rehearse_in_f32(const ConvolutionProblem& problem) {
  const ConvolutionProblem part = part_in_f32(problem);
  const auto offer = offer_convolution(part, ConvolutionMethod::winograd, any_descs(part), nullptr);
  if (!offer) return {};
  const auto rehearsal = std::make_shared<Rehearsal>(part, *offer);
  const int64_t parts = parts_in_f32(problem);
  const auto x = std::make_shared<StoredImages>(rehearsal->x(), parts);
  const auto y = std::make_shared<StoredImages>(rehearsal->y(), parts);
  return [=, direction = problem.direction] {
    for (int64_t i = 0; i < parts; ++i) {
      if (direction != ConvolutionDirection::backward_data) x->read(i);
      if (direction != ConvolutionDirection::forward) y->read(i);
      rehearsal->run();
      if (direction == ConvolutionDirection::backward_data) x->write(i);
      if (direction == ConvolutionDirection::forward) y->write(i);
    }
  };
}

// In loops of our own. Whatever the direction, inputs and outputs have room for any of the three
// tensors.
std::function<void()> rehearse_kernel(const ConvolutionProblem& problem,
                                      const std::shared_ptr<Kernel>& kernel) {
  const auto largest = static_cast<size_t>(
      std::max({problem.x.elements(), problem.w.elements(), problem.y.elements()}));
  const auto tensors =
      std::make_shared<std::vector<std::vector<float>>>(5, std::vector<float>(largest, 0.01f));
  tensors->push_back(std::vector<float>(kernel->workspace_bytes() / sizeof(float)));
  return [=] {
    std::byte* addresses[6];
    for (size_t i = 0; i < 6; ++i)
      addresses[i] = reinterpret_cast<std::byte*>((*tensors)[i].data());
    kernel->run({{addresses, 3}, {addresses + 3, 2}, addresses[5], nullptr});
  };
}

std::function<void()> rehearse_tiles(const ConvolutionProblem& problem) {
  if (!refusal_of_tiles(problem, tile_loops_here()).empty()) return {};
  return rehearse_kernel(problem, make_tiled_convolution(problem, team_size(), *tile_loops_here()));
}

std::function<void()> rehearse_panels(const ConvolutionProblem& problem) {
  if (!refusal_of_panels(problem, panel_loops_here()).empty()) return {};
  return rehearse_kernel(problem,
                         make_panel_convolution(problem, team_size(), *panel_loops_here()));
}

std::function<void()> rehearse_depthwise(const ConvolutionProblem& problem) {
  if (!refusal_of_depthwise(problem, depthwise_loops_here()).empty()) return {};
  return rehearse_kernel(problem, make_depthwise_convolution(problem, *depthwise_loops_here()));
}

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::function<void()> rehearsal_of(const ConvolutionProblem& problem, ConvolutionMethod method) {
  if (method == ConvolutionMethod::winograd_in_f32) return rehearse_in_f32(problem);
  if (method == ConvolutionMethod::winograd_tiles) return rehearse_tiles(problem);
  if (method == ConvolutionMethod::panels) return rehearse_panels(problem);
  if (method == ConvolutionMethod::depthwise) return rehearse_depthwise(problem);
  return rehearse(problem, method);
}

}  // namespace

std::vector<double> measure_convolution(const ConvolutionProblem& problem,
                                        const std::vector<ConvolutionMethod>& methods,
                                        double enough) {
  std::vector<double> best(methods.size(), std::numeric_limits<double>::infinity());
  std::vector<std::function<void()>> runs;
  for (const ConvolutionMethod method : methods) {
    runs.push_back(rehearsal_of(problem, method));
    if (runs.back()) runs.back()();
  }
  double spent = 0;
  for (int round = 0; round < kMostRounds && (round < kFewestRounds || spent < enough); ++round) {
    for (size_t i = 0; i < runs.size(); ++i) {
      if (!runs[i]) continue;
      const double seconds = seconds_of(runs[i]);
      best[i] = std::min(best[i], seconds);
      spent += seconds;
    }
  }
  return best;
}

}  // namespace millrace::kernels
