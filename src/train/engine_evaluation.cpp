// How an engine puts the logits of its devices together and scores them.
#include <algorithm>
#include <stdexcept>

#include "train/engine.h"

namespace millrace {
namespace {

// A stage that begins behind the last layer is sent them.
const Slot& logits_of(const Program& program) {
  for (const auto* slots : {&program.results, &program.inputs}) {
    for (const Slot& slot : *slots) {
      if (slot.name == "logits") return slot;
    }
  }
  throw std::logic_error("the last stage has no logits");
}

bool splits_classes(const Slot& logits) { return logits.slice.axis == 1; }

int64_t classes_of(const Slot& logits) {
  return splits_classes(logits) ? logits.slice.whole : logits.type.shape.at(1);
}

// The rows of a micro-batch that are this device's to score. Each row is one device's; the label is
// there, and the logits are or, where classes are split, come together.
RowRange scored_rows(const Worker& worker, const JobGraphs& graphs) {
  const int64_t samples = graphs.micro_batch();
  const Slot& logits = logits_of(*worker.evaluation);
  if (logits.slice.axis == 0) return rows_of_slot(logits, samples);
  const Slot& labels = worker.evaluation->input("labels");
  if (labels.slice.axis == 0) return rows_of_slot(labels, samples);
  const bool is_first = worker.member == 0 || graphs.plan().round_robin;
  return {0, is_first ? samples : 0};
}

// Copies what a device has of the logits of a micro-batch, each value by one device.
void place(const Worker& worker, const RowRange& own, std::span<float> logits) {
  const Slot& slot = logits_of(*worker.evaluation);
  std::vector<float> part(static_cast<size_t>(slot.type.elements()));
  Stream& stream = worker.session->stream();
  worker.session->copy_out(*worker.evaluation, slot, 0, part.data(), stream);
  stream.finish();
  const int64_t classes = classes_of(slot);
  const int64_t columns = slot.type.shape[1];
  if (splits_classes(slot)) {
    for (int64_t row = 0; row < slot.type.shape[0]; ++row) {
      std::copy_n(part.begin() + row * columns, columns,
                  logits.begin() + row * classes + slot.slice.begin);
    }
    return;
  }
  const int64_t first = own.begin - (slot.slice.axis == 0 ? slot.slice.begin : 0);
  std::copy_n(part.begin() + first * columns, (own.end - own.begin) * columns,
              logits.begin() + own.begin * columns);
}

}  // namespace

void Engine::evaluate(const FeedBatch& batch, Scores& scores) {
  std::vector<const Worker*> last;
  for (const auto& worker : workers_) {
    if (worker->stage + 1 == plan_.stage_count()) last.push_back(worker.get());
  }
  const Slot* slot = last.empty() ? nullptr : &logits_of(*last.front()->evaluation);
  const int64_t classes = slot == nullptr ? 0 : classes_of(*slot);
  const int64_t samples = graphs_.micro_batch();
  std::vector<float> logits(static_cast<size_t>(samples_ * classes));
  const auto rows_from = [&](int64_t row) {
    return std::span(logits).subspan(static_cast<size_t>(row * classes));
  };
  pipeline_->evaluate(batch, [&](const Worker& worker, int64_t micro_batch) {
    if (worker.stage + 1 < plan_.stage_count()) return;
    place(worker, scored_rows(worker, graphs_), rows_from(micro_batch * samples));
  });
  if (slot != nullptr && splits_classes(*slot) && rank_group_) {
    rank_group_->all_reduce(std::span(logits));
  }
  for (const Worker* worker : last) {
    const RowRange own = scored_rows(*worker, graphs_);
    if (own.begin == own.end) continue;
    for (int64_t m = 0; m < plan_.micro_batches; ++m) {
      if (plan_.round_robin && m % worker->members != worker->member) continue;
      const int64_t row = m * samples + own.begin;
      add_scores(scores, rows_from(row),
                 batch.labels.subspan(static_cast<size_t>(rows_.place(row)),
                                      static_cast<size_t>(own.end - own.begin)),
                 classes);
    }
  }
}

void Engine::finish_scores(Scores& scores) {
  if (!rank_group_) return;
  std::vector<double> sums = {static_cast<double>(scores.samples), scores.loss,
                              static_cast<double>(scores.top1), static_cast<double>(scores.top5)};
  rank_group_->all_reduce(std::span(sums));
  scores = {static_cast<int64_t>(sums[0]), sums[1], static_cast<int64_t>(sums[2]),
            static_cast<int64_t>(sums[3]), scores.kept};
}

}  // namespace millrace
