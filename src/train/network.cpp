#include "train/network.h"

#include "models/models.h"
#include "passes/freeze.h"

namespace millrace {

Graph network_of(const TrainJob& job) {
  Graph network = build_model(job.model, job.options);
  choose_trained(network, job.trained);
  return network;
}

}  // namespace millrace
