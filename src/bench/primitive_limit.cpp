#include "bench/primitive_limit.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <unordered_map>

#include "base/median.h"
#include "base/parallel.h"
#include "graph/operator_definition.h"
#include "kernels/convolution_problem.h"

namespace millrace::bench {
namespace {

// A primitive with the descriptors of its arguments.
struct Candidate {
  dnnl::primitive primitive;
  std::vector<std::pair<int, dnnl::memory::desc>> arguments;
  std::vector<double> seconds;
  bool beaten = false;
};

struct Entry {
  std::string kind;
  int count = 0;
  std::vector<Candidate> candidates;

  double best() const {
    double least = std::numeric_limits<double>::infinity();
    for (const Candidate& candidate : candidates) {
      if (!candidate.beaten) least = std::min(least, median(candidate.seconds, least));
    }
    return least;
  }
};

// Grows to the largest size asked for; filled with ordinary numbers.
class Buffer {
 public:
  Buffer() = default;
  ~Buffer() { release(); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void reserve(size_t bytes) {
    if (bytes <= bytes_) return;
    release();
    data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
    bytes_ = bytes;
    ::madvise(data_, bytes_, MADV_HUGEPAGE);
    auto* values = static_cast<float*>(data_);
    parallel_for(static_cast<int64_t>(bytes / sizeof(float)), 4096,
                 [&](int64_t i) { values[i] = 0.01f * static_cast<float>(i % 17) - 0.08f; });
  }
  void* data() const { return data_; }

 private:
  void release() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
    data_ = nullptr;
    bytes_ = 0;
  }
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

Candidate convolution_candidate(const kernels::ConvolutionProblem& problem,
                                const kernels::ConvolutionOffer& offer) {
  const bool data = problem.direction == kernels::ConvolutionDirection::backward_data;
  const bool weights = problem.direction == kernels::ConvolutionDirection::backward_weights;
  Candidate candidate = {offer.make(), {}, {}};
  candidate.arguments = {{data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, offer.descs.x},
                         {weights ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, offer.descs.w},
                         {data || weights ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST, offer.descs.y},
                         {DNNL_ARG_SCRATCHPAD, offer.scratchpad}};
  if (problem.bias) {
    candidate.arguments.emplace_back(weights ? DNNL_ARG_DIFF_BIAS : DNNL_ARG_BIAS, offer.bias);
  }
  return candidate;
}

std::vector<Candidate> linear_candidates(const graph::TensorType& x, const graph::TensorType& w,
                                         const graph::TensorType& y, int direction) {
  const auto any = [](const graph::TensorType& type) { return kernels::dnnl_any(type); };
  const dnnl::inner_product_forward::primitive_desc forward(
      dnnl::inner_product_forward::desc(dnnl::prop_kind::forward_training, any(x), any(w), any(y)),
      kernels::dnnl_attributes(), kernels::dnnl_engine());
  if (direction == 0) {
    return {{dnnl::inner_product_forward(forward),
             {{DNNL_ARG_SRC, forward.src_desc()},
              {DNNL_ARG_WEIGHTS, forward.weights_desc()},
              {DNNL_ARG_DST, forward.dst_desc()},
              {DNNL_ARG_SCRATCHPAD, forward.scratchpad_desc()}},
             {}}};
  }
  if (direction == 1) {
    const dnnl::inner_product_backward_data::primitive_desc chosen(
        dnnl::inner_product_backward_data::desc(any(x), any(w), any(y)), kernels::dnnl_attributes(),
        kernels::dnnl_engine(), forward);
    return {{dnnl::inner_product_backward_data(chosen),
             {{DNNL_ARG_DIFF_SRC, chosen.diff_src_desc()},
              {DNNL_ARG_WEIGHTS, chosen.weights_desc()},
              {DNNL_ARG_DIFF_DST, chosen.diff_dst_desc()},
              {DNNL_ARG_SCRATCHPAD, chosen.scratchpad_desc()}},
             {}}};
  }
  const dnnl::inner_product_backward_weights::primitive_desc chosen(
      dnnl::inner_product_backward_weights::desc(any(x), any(w), any(y)),
      kernels::dnnl_attributes(), kernels::dnnl_engine(), forward);
  return {{dnnl::inner_product_backward_weights(chosen),
           {{DNNL_ARG_SRC, chosen.src_desc()},
            {DNNL_ARG_DIFF_WEIGHTS, chosen.diff_weights_desc()},
            {DNNL_ARG_DIFF_DST, chosen.diff_dst_desc()},
            {DNNL_ARG_SCRATCHPAD, chosen.scratchpad_desc()}},
           {}}};
}

std::vector<Candidate> norm_candidates(const graph::TensorType& x, bool backward) {
  std::vector<Candidate> candidates;
  for (const char* tag : {"aBcd16b", "aBcd8b", "acdb", "abcd"}) {
    const auto desc = kernels::dnnl_desc({x, graph::Layout(tag)});
    const auto flags = dnnl::normalization_flags::use_scale_shift;
    try {
      const dnnl::batch_normalization_forward::primitive_desc forward(
          dnnl::batch_normalization_forward::desc(dnnl::prop_kind::forward_training, desc, 1e-5f,
                                                  flags),
          kernels::dnnl_attributes(), kernels::dnnl_engine());
      if (!backward) {
        candidates.push_back({dnnl::batch_normalization_forward(forward),
                              {{DNNL_ARG_SRC, desc},
                               {DNNL_ARG_DST, desc},
                               {DNNL_ARG_SCALE_SHIFT, forward.weights_desc()},
                               {DNNL_ARG_MEAN, forward.mean_desc()},
                               {DNNL_ARG_VARIANCE, forward.variance_desc()},
                               {DNNL_ARG_SCRATCHPAD, forward.scratchpad_desc()}},
                              {}});
        continue;
      }
      const dnnl::batch_normalization_backward::primitive_desc chosen(
          dnnl::batch_normalization_backward::desc(dnnl::prop_kind::backward, desc, desc, 1e-5f,
                                                   flags),
          kernels::dnnl_attributes(), kernels::dnnl_engine(), forward);
      candidates.push_back({dnnl::batch_normalization_backward(chosen),
                            {{DNNL_ARG_SRC, desc},
                             {DNNL_ARG_DIFF_DST, desc},
                             {DNNL_ARG_DIFF_SRC, desc},
                             {DNNL_ARG_SCALE_SHIFT, chosen.weights_desc()},
                             {DNNL_ARG_DIFF_SCALE_SHIFT, chosen.diff_weights_desc()},
                             {DNNL_ARG_MEAN, chosen.mean_desc()},
                             {DNNL_ARG_VARIANCE, chosen.variance_desc()},
                             {DNNL_ARG_SCRATCHPAD, chosen.scratchpad_desc()}},
                            {}});
    } catch (const dnnl::error&) {
      continue;
    }
  }
  return candidates;
}

}  // namespace

class PrimitiveLimit::Impl {
 public:
  explicit Impl(const graph::Graph& graph) {
    for (graph::OperatorId id : graph.order()) {
      const graph::Operator& op = graph.op(id);
      const auto type = [&](graph::TensorId tensor) { return graph.tensor(tensor).type; };
      const bool first = graph.tensor(op.inputs.at(0)).role == graph::Role::input;
      using Weights = graph::OperatorDefinition::Weights;
      const graph::OperatorDefinition& definition = graph::definition_of(op);
      if (definition.weights == Weights::sliding) add_convolution(graph, op, first);
      if (definition.weights == Weights::dense) {
        for (int direction = 0; direction < 3; ++direction) {
          if (direction == 1 && first) continue;
          add("linear",
              fmt::format("{} {}", graph::to_string(type(op.inputs[0]).shape), direction) +
                  graph::to_string(type(op.inputs[1]).shape),
              [&] {
                return linear_candidates(type(op.inputs[0]), type(op.inputs[1]),
                                         type(op.outputs[0]), direction);
              });
        }
      }
      if (definition.has_running_statistics) {
        for (bool backward : {false, true}) {
          add("batch_norm",
              fmt::format("{} {}", graph::to_string(type(op.inputs[0]).shape), backward),
              [&] { return norm_candidates(type(op.inputs[0]), backward); });
        }
      }
    }
  }

  void measure() {
    for (auto& [key, entry] : entries_) {
      for (Candidate& candidate : entry.candidates) {
        if (candidate.beaten) continue;
        run(candidate);
        candidate.seconds.push_back(run(candidate));
      }
      const double best = entry.best();
      for (Candidate& candidate : entry.candidates) {
        candidate.beaten |= median(candidate.seconds) > 1.25 * best;
      }
    }
  }

  double seconds(const std::string& kind) const {
    double sum = 0;
    for (const auto& [key, entry] : entries_) {
      if (kind.empty() || entry.kind == kind) sum += entry.count * entry.best();
    }
    return sum;
  }

 private:
  template <typename Make>
  void add(const std::string& kind, const std::string& key, const Make& make) {
    Entry& entry = entries_[kind + " " + key];
    if (entry.count == 0) {
      entry.kind = kind;
      entry.candidates = make();
    }
    ++entry.count;
  }

  void add_convolution(const graph::Graph& graph, const graph::Operator& op, bool first) {
    kernels::ConvolutionProblem problem;
    {
      const kernels::KernelOptions options;
      kernels::KernelRequest request = {op, {}, {}, options};
      for (graph::TensorId id : op.inputs) request.inputs.push_back({graph.tensor(id).type, {}});
      for (graph::TensorId id : op.outputs) request.outputs.push_back({graph.tensor(id).type, {}});
      problem = kernels::convolution_problem(request);
    }
    for (kernels::ConvolutionDirection direction :
         {kernels::ConvolutionDirection::forward, kernels::ConvolutionDirection::backward_data,
          kernels::ConvolutionDirection::backward_weights}) {
      kernels::ConvolutionProblem variant = problem;
      variant.direction = direction;
      if (direction == kernels::ConvolutionDirection::backward_data) {
        if (first) continue;
        variant.bias = false;
      }
      add("convolution", variant.key(), [&] {
        std::vector<Candidate> candidates;
        for (kernels::ConvolutionMethod method : kernels::methods_for(variant)) {
          const auto offer =
              kernels::offer_convolution(variant, method, kernels::any_descs(variant), nullptr);
          if (offer) candidates.push_back(convolution_candidate(variant, *offer));
        }
        return candidates;
      });
    }
  }

  double run(Candidate& candidate) {
    std::unordered_map<int, dnnl::memory> arguments;
    for (const auto& [argument, desc] : candidate.arguments) {
      Buffer& buffer = buffers_[argument];
      buffer.reserve(desc.get_size());
      arguments.emplace(argument, dnnl::memory(desc, kernels::dnnl_engine(), buffer.data()));
    }
    dnnl::stream stream(kernels::dnnl_engine());
    const auto start = std::chrono::steady_clock::now();
    candidate.primitive.execute(stream, arguments);
    stream.wait();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  std::map<std::string, Entry> entries_;
  std::map<int, Buffer> buffers_;
};

PrimitiveLimit::PrimitiveLimit(const graph::Graph& graph) : impl_(std::make_unique<Impl>(graph)) {}
PrimitiveLimit::~PrimitiveLimit() = default;
void PrimitiveLimit::measure() { impl_->measure(); }
double PrimitiveLimit::seconds() const { return impl_->seconds(""); }
double PrimitiveLimit::seconds(const std::string& kind) const { return impl_->seconds(kind); }

}  // namespace millrace::bench
