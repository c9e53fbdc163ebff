#include "bench/step_server.h"

#include <chrono>
#include <memory>
#include <optional>

#include "bench/primitive_limit.h"
#include "train/engine.h"
#include "train/feed/feeds.h"
#include "train/summary.h"

namespace millrace::bench {
namespace {

class StepServer {
 public:
  StepServer(const train::TrainJob& job, train::Purpose purpose)
      : job_(job),
        engine_(job, purpose, observer_),
        feed_(train::make_training_feed(job, {}, rows_of(engine_, job))) {
    engine_.start(job.seed);
    batch_ = feed_->next();
  }

  // The first process is asked for steps, and the others do what it does.
  bool leads() const { return engine_.rank() == 0; }
  void follow() {
    while (!engine_.any(false)) take_step();
    engine_.finish();
  }
  void end() {
    engine_.any(true);
    engine_.finish();
  }

  Json step() {
    engine_.any(false);
    return take_step();
  }

  Json evaluate() {
    train::Scores scores(engine_.classes());
    const auto start = std::chrono::steady_clock::now();
    engine_.evaluate(*batch_, scores);
    const auto end = std::chrono::steady_clock::now();
    return {{"seconds", std::chrono::duration<double>(end - start).count()}};
  }

  Json memory() const {
    return {{"peak_rss_bytes", train::peak_resident_bytes()},
            {"arena_bytes", engine_.largest().arena_bytes}};
  }

  Json limit() {
    engine_.device().run([&] {
      if (limit_ == nullptr) {
        limit_ = std::make_unique<PrimitiveLimit>(models::build_model(job_.model, job_.options));
      }
      limit_->measure();
    });
    return {{"seconds", limit_->seconds()},
            {"convolution", limit_->seconds("convolution")},
            {"linear", limit_->seconds("linear")},
            {"batch_norm", limit_->seconds("batch_norm")}};
  }

 private:
  static std::vector<RowRange> rows_of(const train::Engine& engine, const train::TrainJob& job) {
    std::vector<RowRange> rows = engine.rows();
    if (rows == std::vector<RowRange>{{0, job.options.batch}}) rows.clear();
    return rows;
  }

  // Every step has the same samples; the first takes them in.
  Json take_step() {
    double loss = 0;
    train::Engine::Steps steps;
    steps.seed = job_.seed;
    steps.first = step_;
    steps.learning_rate = [&](int64_t) { return static_cast<float>(job_.learning_rate.base); };
    steps.next = [&]() -> const train::FeedBatch* {
      return step_ == 0 || !job_.plan.runs_whole() ? &*batch_ : nullptr;
    };
    steps.finished = [&](int64_t, const train::StepOutcome& outcome) { loss = outcome.loss(); };
    const auto start = std::chrono::steady_clock::now();
    engine_.train(steps);
    const auto end = std::chrono::steady_clock::now();
    ++step_;
    return {{"seconds", std::chrono::duration<double>(end - start).count()}, {"loss", loss}};
  }

  train::TrainJob job_;
  train::TrainingObserver observer_;
  train::Engine engine_;
  std::unique_ptr<train::Feed> feed_;
  std::unique_ptr<PrimitiveLimit> limit_;
  std::optional<train::FeedBatch> batch_;
  int64_t step_ = 0;
};

}  // namespace

void serve_steps(const train::TrainJob& job, const RequestLines& lines, bool inference) {
  StepServer server(job, inference ? train::Purpose::evaluation : train::Purpose::training);
  if (!server.leads()) return server.follow();
  serve_requests(lines, {{"ready", true}, {"model", job.model}, {"batch", job.options.batch}},
                 {{"step", [&] { return inference ? server.evaluate() : server.step(); }},
                  {"memory", [&] { return server.memory(); }},
                  {"limit", [&] { return server.limit(); }}});
  server.end();
}

}  // namespace millrace::bench
