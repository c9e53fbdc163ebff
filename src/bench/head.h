// Classifier heads for many identities, against PyTorch.
//
// Each row of the table is measured in a process of its own, so that its peak of resident memory
// is its own too; the peer's process takes turns with it, a step each, and medians are compared.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"

namespace millrace::bench {

struct HeadBenchOptions {
  std::vector<int64_t> classes;
  std::vector<std::string> modes;  // dp, mp, pfc
  double sample_rate = 0.1;        // of pfc
  int64_t batch = 128;
  int64_t dimension = 512;
  int steps = 5;
  int warm_up = 1;
  int threads = 2;
  std::string storage = "fp32";  // or bf16, fp16
  bool peer = false;
  std::string peer_update = "best";                        // of sampled and dense: see the script
  std::filesystem::path program;                           // the millrace program itself
  std::filesystem::path peer_script;                       // bench/peer_partial_fc.py
  std::filesystem::path peer_python = "/usr/bin/python3";  // Debian's, which has its PyTorch
};

struct HeadRow {
  int64_t classes = 0;
  std::string mode;
  std::string refusal;  // why it could not be measured; then the numbers are 0
  double samples_per_second = 0;
  double seconds_per_step = 0;
  double limit_seconds = 0;  // of the products alone
  int64_t peak_bytes = 0;    // of the device
  int64_t process_peak_rss_bytes = 0;
  double peer_samples_per_second = 0;  // 0: not measured
  int64_t peer_peak_rss_bytes = 0;

  double speed_ratio() const;
  double share_of_limit() const;
  double memory_ratio() const;
};

// `progress` receives a sentence now and then. Throws InputError for options out of range.
std::vector<HeadRow> run_head_bench(const HeadBenchOptions& options,
                                    const std::function<void(const std::string&)>& progress);

std::string to_table(const std::vector<HeadRow>& rows);
Json to_json(const std::vector<HeadRow>& rows, const HeadBenchOptions& options);

}  // namespace millrace::bench
