// Millrace as a library: all of its public headers.
//
//   api::Data (api/data.h)    a data set of files, of pictures in memory, or of own records
//   api::Model (api/model.h)  a network by name, of an ONNX file, or described with graph::Builder
//                             (graph/builder.h); with weights it evaluates, predicts and embeds
//   api::Job (api/job.h)      a model, data and how to train
//   api::Plan (api/plan.h)    what a job will cost, known before its first step
//   api::Run (api/job.h)      a finished run, with the best model
//   api::Report (api/report.h)  what runs wrote, as a page
//
// Below them, for those who need all of it:
//   train::TrainJob (train/job.h)  every setting of a job, which the nouns above give access to
//   train::Workload (train/trainer.h)  a network and feeds of one's own (train/feed/feed.h);
//   run_training train::TrainingObserver (train/observer.h)  is told of every step, evaluation and
//   checkpoint
//
// Everything is plain data or owned by the caller; there is no state between jobs. A job runs on
// the thread that calls it, which waits for the device's own threads. Mistakes throw InputError
// before the first step, a job that fails throws JobError, each with one sentence
// (base/error.h). Nothing is printed.
#pragma once

#include "api/data.h"
#include "api/job.h"
#include "api/keywords.h"
#include "api/model.h"
#include "api/plan.h"
#include "api/report.h"
#include "base/error.h"
#include "graph/builder.h"
#include "models/models.h"
#include "train/feed/feed.h"
#include "train/job.h"
#include "train/observer.h"
#include "train/trainer.h"
