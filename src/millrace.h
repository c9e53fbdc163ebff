// Millrace as a library: all of its public headers.
//
//   Builder (graph/builder.h)      describes a network; models/models.h has some by name
//   TrainJob (train/job.h)         says how to train: steps, optimizer, learning rate, memory
//   Workload (train/trainer.h)     a network and data of your own; Feed (train/feed/feed.h) hands
//   out
//                                  batches, from memory or from wherever you like
//   run_training                   compiles the step, runs the job and returns a TrainResult
//   TrainingObserver (train/observer.h)  is told of every step, evaluation and checkpoint
//
// Everything is plain data or owned by the caller; there is no state between jobs. A job runs on
// the thread that calls it, which waits for the device's own threads. Mistakes throw InputError
// before the first step, a job that fails throws JobError, each with one sentence
// (base/error.h). Nothing is printed.
#pragma once

#include "base/error.h"
#include "graph/builder.h"
#include "models/models.h"
#include "train/feed/feed.h"
#include "train/job.h"
#include "train/observer.h"
#include "train/trainer.h"
