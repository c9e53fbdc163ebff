// One device against PyTorch and against the limit of the primitives.
//
// For each job three processes stand side by side: Millrace, and PyTorch in each of its two
// layouts. They take turns, one step each, so that whatever else the machine does falls on all
// alike; medians are compared.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace millrace::bench {

struct SingleJob {
  std::string model;
  int64_t batch = 1;
  std::string algorithm = "auto";  // of the convolutions
};

// "resnet50:64" or "vgg16:28:direct". Throws InputError.
SingleJob parse_single_job(const std::string& text);

struct SingleOptions {
  std::vector<SingleJob> jobs;
  int rounds = 5;
  int warm_up = 1;
  int threads = 2;
  int64_t image = 224;
  bool peer = true;
  bool limit = true;
  std::filesystem::path program;      // the millrace program itself
  std::filesystem::path peer_script;  // bench/peer_pytorch.py
};

struct SingleRow {
  SingleJob job;
  double samples_per_second = 0;
  int64_t peak_rss_bytes = 0;
  int64_t arena_bytes = 0;
  double limit_samples_per_second = 0;  // 0: not measured
  double share_of_limit = 0;
  double peer_samples_per_second = 0;  // the better layout; 0: not measured
  std::string peer_layout;
  int64_t peer_peak_rss_bytes = 0;

  double speed_ratio() const;
  double memory_ratio() const;
};

// `progress` receives a sentence now and then. A job whose model and batch were measured
// before with another algorithm is compared with the peer's earlier figures.
std::vector<SingleRow> run_single(const SingleOptions& options,
                                  const std::function<void(const std::string&)>& progress);

std::string to_table(const std::vector<SingleRow>& rows);
Json to_json(const std::vector<SingleRow>& rows);

}  // namespace millrace::bench
