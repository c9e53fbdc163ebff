#include "bench/head_server.h"

#include <chrono>

#include "base/error.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "bench/head_limit.h"
#include "compile/compiler.h"
#include "graph/builder.h"
#include "runtime/session.h"
#include "train/summary.h"

namespace millrace::bench {
namespace {

constexpr float kLearningRate = 0.1f;

// The centres start out uniform with the deviation that training starts with: drawing millions
// of them from a normal distribution would take longer than the measurement.
graph::Graph head_graph(const HeadJob& job) {
  graph::Builder net;
  net.margin_head(net.input("embeddings", {job.batch, job.dimension}), job.head);
  graph::Graph graph = net.take();
  constexpr float kBound = 0.01f * 1.7320508f;
  graph.tensor(graph.find_tensor("head.centres")).initializer = {graph::Initializer::Kind::uniform,
                                                                 -kBound, kBound};
  return graph;
}

class HeadServer {
 public:
  explicit HeadServer(const HeadJob& job) : job_(job), device_({.threads = job.threads}) {
    compile::CompileOptions options;
    options.kernels.threads = job.threads;
    options.optimizer.momentum = 0.9;
    options.optimizer.weight_decay = 5e-4;
    device_.run([&] { program_ = compile::compile_training(head_graph(job), options); });
    const int64_t room = available_memory();
    if (program_.arena_bytes > room) {
      fail_job("A head of {} classes needs {} but the machine has {} left.", job.head.classes,
               format_bytes(static_cast<uint64_t>(program_.arena_bytes)),
               format_bytes(static_cast<uint64_t>(room)));
    }
    session_.emplace(device_, std::vector<const compile::Program*>{&program_});
    session_->initialize(job.seed);
    const Random random(job.seed, 1);
    std::vector<float> embeddings(static_cast<size_t>(job.batch * job.dimension));
    random.normals(0, embeddings);
    std::vector<int32_t> labels(static_cast<size_t>(job.batch));
    const Random classes(job.seed, 2);
    for (size_t i = 0; i < labels.size(); ++i) {
      labels[i] = static_cast<int32_t>(classes.below(i, static_cast<uint64_t>(job.head.classes)));
    }
    session_->write_input(program_, "embeddings", embeddings);
    session_->write_input(program_, "labels", labels);
  }

  Json step() {
    const auto start = std::chrono::steady_clock::now();
    session_->run(program_, {job_.seed, step_++, kLearningRate});
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    return {{"seconds", taken.count()}, {"loss", session_->scalar(program_, "loss")}};
  }

  Json memory() const {
    return {{"peak_rss_bytes", train::peak_resident_bytes()},
            {"arena_bytes", program_.arena_bytes}};
  }

  Json limit() {
    double seconds = 0;
    device_.run([&] { seconds = head_product_seconds(job_); });
    return {{"seconds", seconds}};
  }

 private:
  HeadJob job_;
  backend::Device device_;
  compile::Program program_;
  std::optional<runtime::Session> session_;
  int64_t step_ = 0;
};

}  // namespace

void serve_head_steps(const HeadJob& job, const RequestLines& lines) {
  HeadServer server(job);
  serve_requests(lines, {{"ready", true}, {"classes", job.head.classes}, {"batch", job.batch}},
                 {{"step", [&] { return server.step(); }},
                  {"memory", [&] { return server.memory(); }},
                  {"limit", [&] { return server.limit(); }}});
}

}  // namespace millrace::bench
