// Feeds over data sets on disk.
#pragma once

#include <memory>

#include "data/loader.h"
#include "train/feed/feed.h"

namespace millrace::train {

// Hands out the loader's batches; images must be in NCHW. Ends when the loader does.
std::unique_ptr<Feed> make_loader_feed(std::shared_ptr<const data::RecordSource> source,
                                       const data::LoaderOptions& options);

}  // namespace millrace::train
