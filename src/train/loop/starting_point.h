// Where a run begins: at step 0, or where an earlier one left off.
#pragma once

#include <filesystem>

#include "train/checkpoint.h"
#include "train/engine.h"

namespace millrace::train {

// What an earlier run left to go on from. Plain data, the same in every process.
struct StartingPoint {
  std::filesystem::path checkpoint = {};  // empty: the beginning
  Manifest manifest = {};
};

// The newest checkpoint of the job that is intact, if it resumes. Called by all processes; only the
// first need see the files. Throws InputError if the job does not resume and would run into
// checkpoints, or differs from the one that wrote them.
StartingPoint find_start(const TrainJob& job, Engine& engine, TrainingObserver& observer);

// Tells of everything that the job, with its number of steps filled in, does otherwise than the one
// that wrote the checkpoint; nothing if it begins anew.
void tell_changes(const StartingPoint& start, const TrainJob& job, TrainingObserver& observer);

// Writes a checkpoint's tensors into the job. Called by all processes.
void restore(const StartingPoint& start, const TrainJob& job, JobState& state, Engine& engine,
             TrainingObserver& observer);

}  // namespace millrace::train
