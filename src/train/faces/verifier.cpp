#include "train/faces/verifier.h"

#include <algorithm>

#include "base/error.h"
#include "train/evaluation.h"
#include "train/faces/embedder.h"
#include "train/feed/feeds.h"

namespace millrace::train {
namespace {

// Pairs have no labels, and none of them may be left out.
TrainJob job_of_pairs(TrainJob job) {
  job.data.label_offset = 0;
  job.data.skip_bad_records = false;
  return job;
}

double tar_at_a_thousandth(const VerificationReport& report) {
  const auto found = std::find_if(report.rates.begin(), report.rates.end(),
                                  [](const AcceptRate& rate) { return rate.far == 1e-3; });
  return found == report.rates.end() ? 0 : found->tar;
}

}  // namespace

std::vector<PairsSet> open_pairs(const std::vector<std::filesystem::path>& files) {
  std::vector<PairsSet> sets;
  for (const std::filesystem::path& path : files) {
    const std::string name = path.stem().string();
    for (const PairsSet& other : sets) {
      if (other.name == name) fail_input("There are two verification sets called '{}'.", name);
    }
    sets.push_back({name, std::make_shared<data::FacePairsFile>(path)});
  }
  return sets;
}

std::optional<VerificationReport> verify_set(const TrainJob& job, Engine& engine,
                                             const PairsSet& set, const std::atomic<bool>* stop) {
  std::vector<RowRange> rows = engine.rows();
  if (rows == std::vector<RowRange>{{0, job.options.batch}}) rows.clear();
  const auto feed = make_evaluation_feed(job_of_pairs(job), data::open_face_pairs(set.file), rows);
  std::vector<float> embeddings, mirrored;
  const size_t images = set.file->pairs().images.size();
  const auto batch_size = static_cast<size_t>(job.options.batch);
  for (size_t first = 0; first < images; first += batch_size) {
    if (engine.any(stop != nullptr && stop->load())) return {};
    FeedBatch batch = *feed->next();
    const std::vector<float> plain = engine.embed(batch);
    mirror_images(batch.images, job.options.image, mirrored);
    batch.images = mirrored;
    append_unit_sums(plain, engine.embed(batch), std::min(batch_size, images - first),
                     engine.features(), embeddings);
  }
  return verify_pairs(embeddings, set.file->pairs().same);
}

Verifier::Verifier(const TrainJob& job) : job_(job), sets_(open_pairs(job.verification)) {
  const size_t slash = job.metric.find('/');
  if (slash == std::string::npos) return;
  const std::string wanted = job.metric.substr(slash + 1);
  if (std::none_of(sets_.begin(), sets_.end(),
                   [&](const PairsSet& set) { return set.name == wanted; })) {
    fail_input("‹metric› is '{}', but no ‹eval_verification› is called '{}'.", job.metric, wanted);
  }
}

int64_t Verifier::pairs() const {
  int64_t count = 0;
  for (const PairsSet& set : sets_) count += static_cast<int64_t>(set.file->pairs().count());
  return count;
}

std::optional<std::vector<Measured>> Verifier::measure(Engine& engine,
                                                       const std::atomic<bool>* stop) const {
  share_statistics(engine);
  std::vector<Measured> figures = {{std::string(kVerificationMetric), 0},
                                   {std::string(kAucMetric), 0},
                                   {std::string(kTarMetric), 0}};
  const auto count = static_cast<double>(sets_.size());
  std::vector<Measured> of_sets;
  for (const PairsSet& set : sets_) {
    const std::optional<VerificationReport> report = verify_set(job_, engine, set, stop);
    if (!report) return {};
    figures[0].value += report->accuracy / count;
    figures[1].value += report->auc / count;
    figures[2].value += tar_at_a_thousandth(*report) / count;
    of_sets.push_back({fmt::format("{}/{}", kVerificationMetric, set.name), report->accuracy});
  }
  const bool wants_one = job_.metric.find('/') != std::string::npos;
  if (of_sets.size() > 1 || wants_one)
    figures.insert(figures.end(), of_sets.begin(), of_sets.end());
  return figures;
}

}  // namespace millrace::train
