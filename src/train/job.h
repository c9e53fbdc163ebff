// A training job as plain data: everything that the flags of the command line say.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/settings.h"
#include "data/image/colour.h"
#include "data/image/rand_augment.h"
#include "data/image/recipe.h"
#include "data/mixing.h"
#include "kernels/convolution_algorithm.h"
#include "models/models.h"
#include "parallel/plan.h"
#include "passes/settings.h"
#include "train/learning_rate.h"
#include "train/loss_scale.h"
#include "train/metric.h"
#include "train/new_layers.h"

namespace millrace::comm {
class MpiSession;
}  // namespace millrace::comm

namespace millrace::train {

// "Every N steps" or "every N epochs"; neither means only at the end.
struct Interval {
  int64_t steps = 0;
  int64_t epochs = 0;

  // Whether something is due after `step` steps of `steps_per_epoch` each (0: no epochs).
  bool due(int64_t step, int64_t steps_per_epoch) const;
};

// "500" → steps, "2e" → epochs. Throws InputError naming the flag.
Interval parse_interval(std::string_view text, std::string_view flag);

// A data set and how it is read.
struct DataSettings {
  std::string source = "synthetic";  // or FORMAT:PATH
  std::string augment = "auto";      // photo, face, small, none, or auto: by model and image size
  // What training does to images besides.
  data::ColourJitter jitter = {};
  data::RandAugment rand_augment = {};
  double erasing = 0;
  data::MixSettings mix = {};
  int64_t label_offset = 0;  // subtracted from every label
  // Of each colour, of values from 0 to 1; where not given, those of the recipe.
  std::optional<std::array<float, 3>> mean = {};
  std::optional<std::array<float, 3>> deviation = {};
  double valid_share = 0;  // of the data that is evaluated on instead; 0: none
  bool balanced = false;   // every class is drawn as often as the others
  // How images are evaluated, where the weights tell; `augment` is then auto.
  std::optional<data::ImageRecipe> recipe = {};
  int workers = 2;
  bool skip_bad_records = false;
};

// A fault for trials: a gradient that becomes infinite.
struct InjectedOverflow {
  int64_t step = 0;  // as reports count them, from 1
  int device = 0;    // of the whole job, from 0
};

// What is compiled: a network, how it is trained, and where its parts run. Two jobs with the same
// settings of the step have the same programs.
struct StepSettings {
  std::string model;
  // In place of a model by name: describes a network of the caller's own, which ends in
  // Builder::classify, for any options.
  std::function<graph::Graph(const models::ModelOptions&)> network = {};
  models::ModelOptions options;
  passes::OptimizerSettings optimizer;
  passes::TrainedSettings trained;
  std::vector<double> class_weights;  // factors of the loss; empty: all are 1
  bool second_labels = false;         // samples are mixed, so that the loss takes two of each
  passes::PrecisionSettings precision;
  LossScaleSettings loss_scale;
  passes::RecomputePolicy recompute = passes::RecomputePolicy::automatic;
  kernels::ConvolutionAlgorithm convolution = kernels::ConvolutionAlgorithm::automatic;
  std::vector<InjectedOverflow> inject_overflow;
  bool check_finite = false;  // of everything in every step, not the loss alone
  std::filesystem::path dump_passes;

  // Where each part runs; `options.batch` is the batch of the whole job.
  parallel::Plan plan;
  backend::BackendSettings backend;  // what the devices are
  int threads = 0;                   // 0: every core
  bool oversubscribe = false;        // threads may share cores
  int64_t device_memory = 0;         // bytes; 0: no limit
  // The processes of the job; borrowed, null for this one alone.
  comm::MpiSession* processes = nullptr;
};

// What a run does with the step: on which data, for how long, what it keeps and tells.
struct RunSettings {
  DataSettings data;
  int64_t steps = 0;  // one of steps and epochs is above 0
  int64_t epochs = 0;
  int64_t freeze_epochs = 0;  // what `trained` freezes is trained behind so many; 0: never
  uint64_t seed = 0;
  LearningRateSettings learning_rate;  // total_steps is filled in by the job
  double average_decay = 0;            // of the average of the weights; 0: there is none

  std::filesystem::path load_weights;
  NewLayers new_layers;  // that load_weights leaves alone
  std::filesystem::path save_weights;
  std::filesystem::path trace;  // of all devices, as Chrome trace JSON; empty: none

  std::filesystem::path checkpoint;  // directory; empty: none
  Interval checkpoint_every;
  int keep = 2;
  bool resume = false;

  // Of the data, in the order of the labels; empty where it has none. Evaluation data with names
  // is matched by them.
  std::vector<std::string> class_names;
  bool classes_assumed = false;  // the data does not tell how many there are, nor did the user

  std::string evaluation_data;  // FORMAT:PATH; empty: none
  Interval evaluation_every;
  // Pairs of faces in InsightFace's .bin format, measured with the evaluation data or instead of
  // it.
  std::vector<std::filesystem::path> verification;
  std::string metric = "top1";  // by which evaluations are judged
  int64_t worst_samples = 0;    // of an evaluation are told with their images
  int64_t patience = 0;         // evaluations without a better figure until the end; 0: no end
  bool best = false;            // weights are those of the best checkpoint, not the newest

  // Set from outside (a signal) to end after the current step; borrowed, may be null.
  const std::atomic<bool>* stop = nullptr;
};

struct TrainJob : StepSettings, RunSettings {
  bool evaluates() const { return !evaluation_data.empty() || !verification.empty(); }
};

// Throws InputError naming the flag at fault; looks at numbers and paths, opens nothing.
void check(const TrainJob& job);

}  // namespace millrace::train
