// How an engine puts the logits of its devices together and scores them.
#include <algorithm>
#include <functional>
#include <stdexcept>

#include "train/engine.h"

namespace millrace::train {
namespace {

// A stage that begins behind the last layer is sent them.
const compile::Slot& logits_of(const compile::Program& program) {
  for (const auto* slots : {&program.results, &program.inputs}) {
    for (const compile::Slot& slot : *slots) {
      if (slot.name == "logits") return slot;
    }
  }
  throw std::logic_error("the last stage has no logits");
}

bool splits_classes(const compile::Slot& logits) { return logits.slice.axis == 1; }

int64_t classes_of(const compile::Slot& logits) {
  return splits_classes(logits) ? logits.slice.whole : logits.type.shape.at(1);
}

// The rows of a micro-batch that are this device's to score. Each row is one device's; the label is
// there, and the logits are or, where classes are split, come together.
RowRange scored_rows(const Worker& worker, const compile::Slot& slot,
                     const parallel::JobGraphs& graphs) {
  const int64_t samples = graphs.micro_batch();
  if (slot.slice.axis == 0) return rows_of_slot(slot, samples);
  for (const compile::Slot& input : worker.evaluation->inputs) {
    if (input.name == "labels" && input.slice.axis == 0) return rows_of_slot(input, samples);
  }
  const bool is_first = worker.member == 0 || graphs.plan().round_robin;
  return {0, is_first ? samples : 0};
}

// Copies what a device has of the logits of a micro-batch, each value by one device.
void place(const Worker& worker, const compile::Slot& slot, const RowRange& own,
           std::span<float> logits) {
  std::vector<float> part(static_cast<size_t>(slot.type.elements()));
  backend::Stream& stream = worker.session->stream();
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

// Runs the evaluation and puts what devices have of a result together: rows of `columns` values,
// zeros where other processes have them.
void Engine::collect(const FeedBatch& batch, const SlotOf& slot_of, int64_t columns,
                     std::vector<float>& values) {
  values.assign(static_cast<size_t>(samples_ * columns), 0.0f);
  pipeline_->evaluate(batch, [&](const Worker& worker, int64_t micro_batch) {
    const compile::Slot* slot = slot_of(worker);
    if (slot == nullptr) return;
    const int64_t first = micro_batch * graphs_.micro_batch() * columns;
    place(worker, *slot, scored_rows(worker, *slot, graphs_),
          std::span(values).subspan(static_cast<size_t>(first)));
  });
}

void Engine::collect_mean(std::span<const FeedBatch> views, const SlotOf& slot_of, int64_t columns,
                          std::vector<float>& values) {
  collect(views.front(), slot_of, columns, values);
  if (views.size() == 1) return;
  std::vector<float> others;
  for (const FeedBatch& view : views.subspan(1)) {
    collect(view, slot_of, columns, others);
    std::transform(values.begin(), values.end(), others.begin(), values.begin(), std::plus());
  }
  for (float& value : values) value /= static_cast<float>(views.size());
}

std::vector<float> Engine::embed(const FeedBatch& batch) {
  std::vector<float> values;
  collect(
      batch,
      [](const Worker& worker) -> const compile::Slot* {
        for (const compile::Slot& slot : worker.evaluation->results) {
          if (slot.name == kEmbedding) return &slot;
        }
        return nullptr;
      },
      features_, values);
  if (rank_group_) rank_group_->all_reduce(std::span(values));
  return values;
}

void Engine::evaluate(const FeedBatch& batch, Scores& scores) {
  evaluate(std::span(&batch, 1), scores);
}

void Engine::evaluate(std::span<const FeedBatch> views, Scores& scores) {
  const FeedBatch& batch = views.front();
  std::vector<const Worker*> last;
  for (const auto& worker : workers_) {
    if (worker->stage + 1 == plan_.stage_count()) last.push_back(worker.get());
  }
  const compile::Slot* slot = last.empty() ? nullptr : &logits_of(*last.front()->evaluation);
  const int64_t classes = slot == nullptr ? 0 : classes_of(*slot);
  const int64_t samples = graphs_.micro_batch();
  std::vector<float> logits;
  const auto rows_from = [&](int64_t row) {
    return std::span(logits).subspan(static_cast<size_t>(row * classes));
  };
  const auto slot_of = [&](const Worker& worker) {
    return worker.stage + 1 < plan_.stage_count() ? nullptr : &logits_of(*worker.evaluation);
  };
  collect_mean(views, slot_of, classes, logits);
  if (slot != nullptr && splits_classes(*slot) && rank_group_) {
    rank_group_->all_reduce(std::span(logits));
  }
  for (const Worker* worker : last) {
    const RowRange own = scored_rows(*worker, logits_of(*worker->evaluation), graphs_);
    if (own.begin == own.end) continue;
    for (int64_t m = 0; m < plan_.micro_batches; ++m) {
      if (plan_.round_robin && m % worker->members != worker->member) continue;
      const int64_t row = m * samples + own.begin;
      const auto first = static_cast<size_t>(rows_.place(row));
      const auto count = static_cast<size_t>(own.end - own.begin);
      const size_t image = batch.images.size() / batch.labels.size();
      add_scores(scores, rows_from(row), batch.labels.subspan(first, count), classes,
                 {batch.images.subspan(first * image, count * image), batch.position.index + row});
    }
  }
}

void Engine::finish_scores(Scores& scores) {
  if (rank_group_) rank_group_->all_reduce(scores.sums.values());
}

}  // namespace millrace::train
