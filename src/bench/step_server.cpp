#include "bench/step_server.h"

#include <chrono>
#include <memory>
#include <optional>

#include "bench/primitive_limit.h"
#include "train/engine.h"
#include "train/feed/feeds.h"
#include "train/summary.h"

namespace millrace {
namespace {

class StepServer {
 public:
  explicit StepServer(const TrainJob& job)
      : job_(job), engine_(job, Purpose::training, observer_), feed_(make_training_feed(job, {})) {
    engine_.start(job.seed);
    batch_ = feed_->next();
  }

  // Every step has the same samples; the first takes them in.
  Json step() {
    double loss = 0;
    Engine::Steps steps;
    steps.seed = job_.seed;
    steps.first = step_;
    steps.learning_rate = [&](int64_t) { return static_cast<float>(job_.learning_rate.base); };
    steps.next = [&]() -> const FeedBatch* {
      return step_ == 0 || !job_.plan.runs_whole() ? &*batch_ : nullptr;
    };
    steps.finished = [&](int64_t, const StepOutcome& outcome) { loss = outcome.loss(); };
    const auto start = std::chrono::steady_clock::now();
    engine_.train(steps);
    const auto end = std::chrono::steady_clock::now();
    ++step_;
    return {{"seconds", std::chrono::duration<double>(end - start).count()}, {"loss", loss}};
  }

  Json memory() const {
    return {{"peak_rss_bytes", peak_resident_bytes()},
            {"arena_bytes", engine_.training()->arena_bytes}};
  }

  Json limit() {
    engine_.device().run([&] {
      if (limit_ == nullptr) {
        limit_ = std::make_unique<PrimitiveLimit>(build_model(job_.model, job_.options));
      }
      limit_->measure();
    });
    return {{"seconds", limit_->seconds()},
            {"convolution", limit_->seconds("convolution")},
            {"linear", limit_->seconds("linear")},
            {"batch_norm", limit_->seconds("batch_norm")}};
  }

 private:
  TrainJob job_;
  TrainingObserver observer_;
  Engine engine_;
  std::unique_ptr<Feed> feed_;
  std::unique_ptr<PrimitiveLimit> limit_;
  std::optional<FeedBatch> batch_;
  int64_t step_ = 0;
};

}  // namespace

void serve_steps(const TrainJob& job, const RequestLines& lines) {
  StepServer server(job);
  serve_requests(lines, {{"ready", true}, {"model", job.model}, {"batch", job.options.batch}},
                 {{"step", [&] { return server.step(); }},
                  {"memory", [&] { return server.memory(); }},
                  {"limit", [&] { return server.limit(); }}});
}

}  // namespace millrace
