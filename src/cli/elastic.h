// A job that goes on with the hosts that are left.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/hosts.h"

namespace millrace::cli {

// What `--elastic` keeps: the samples of a step, whatever ranks there are.
struct ElasticJob {
  std::vector<HostRanks> hosts;
  int64_t batch = 1;    // of each device
  int64_t devices = 1;  // of each rank
};

// The job on the hosts that are there: as many of their ranks, from the first host on, as the
// samples of a step divide evenly over, with a batch that keeps their number. The job as it is if
// all are there. There is at least one.
ElasticJob share_over(const ElasticJob& job, const std::vector<HostRanks>& there);

// The hosts on which the launcher can start this very program, asked all at once; one that has not
// answered within `seconds` does not. This host is not asked. Stops early when `stop` is set.
std::vector<HostRanks> hosts_that_answer(const std::vector<HostRanks>& hosts, double seconds,
                                         const std::atomic<bool>& stop);

// "host b does not answer; 2 of 4 ranks go on with --batch 8": what has changed, empty if nothing.
std::string describe_share(const ElasticJob& job, const std::vector<HostRanks>& there,
                           const ElasticJob& share);

// The arguments with `--hosts` and `--batch` of the share.
std::vector<std::string> arguments_of_share(const std::vector<std::string>& arguments,
                                            const ElasticJob& share);

}  // namespace millrace::cli
