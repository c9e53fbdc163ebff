#include "bench/scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/median.h"
#include "base/text.h"
#include "bench/line_process.h"

namespace millrace::bench {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> command_of(const ScalingOptions& options, const ScalingRow& row) {
  std::vector<std::string> command = {options.program.string(),
                                      "bench",
                                      "steps",
                                      "--model",
                                      options.model,
                                      "--batch",
                                      std::to_string(options.batch),
                                      "--devices",
                                      std::to_string(row.devices),
                                      "--threads-per-device",
                                      std::to_string(threads_of(options)),
                                      "--precision",
                                      row.precision};
  if (options.image > 0) {
    command.insert(command.end(), {"--image", std::to_string(options.image)});
  }
  if (row.shares_cores) command.emplace_back("--oversubscribe");
  return command;
}

// Samples per second of one process.
double run_once(const ScalingOptions& options, const ScalingRow& row) {
  LineProcess process(command_of(options, row));
  process.ask("");
  std::vector<double> seconds;
  for (int step = 0; step < options.warm_up + options.steps; ++step) {
    const double time = process.ask("step").at("seconds").get<double>();
    if (step >= options.warm_up) seconds.push_back(time);
  }
  return static_cast<double>(options.batch * row.devices) / median(seconds);
}

const ScalingRow* find_row(const std::vector<ScalingRow>& rows, int devices,
                           const std::string& precision) {
  for (const ScalingRow& row : rows) {
    if (row.devices == devices && row.precision == precision && !row.runs.empty()) return &row;
  }
  return nullptr;
}

void check_scaling_options(const ScalingOptions& options) {
  if (options.devices.empty()) fail_input("‹devices› names no number of devices.");
  for (const int devices : options.devices) {
    if (devices < 1 || devices > 1024) {
      fail_input("‹devices› has {}; numbers of devices run from 1 to 1024.", devices);
    }
  }
  if (options.precisions.empty()) fail_input("‹precisions› names none of fp32, fp16 and bf16.");
  for (const std::string& name : options.precisions) {
    if (name != "fp32" && name != "fp16" && name != "bf16") {
      fail_input("‹precisions› has '{}'; choose among fp32, fp16 and bf16.", name);
    }
  }
  if (options.batch < 1) fail_input("‹batch› is {}; it must be at least 1.", options.batch);
  if (options.repeat < 1) fail_input("‹repeat› is {}; it must be at least 1.", options.repeat);
  if (options.steps < 1) fail_input("‹steps› is {}; it must be at least 1.", options.steps);
}

}  // namespace

int threads_of(const ScalingOptions& options) {
  if (options.threads > 0) return options.threads;
  const int most = *std::max_element(options.devices.begin(), options.devices.end());
  return std::max(1, options.cores / most);
}

std::vector<ScalingRow> run_scaling(const ScalingOptions& options,
                                    const std::function<void(const std::string&)>& progress) {
  check_scaling_options(options);
  std::vector<ScalingRow> rows;
  for (const std::string& precision : options.precisions) {
    for (const int devices : options.devices) {
      ScalingRow row;
      row.devices = devices;
      row.precision = precision;
      row.shares_cores = devices * threads_of(options) > options.cores;
      rows.push_back(row);
    }
  }
  std::vector<double> taken(rows.size(), 0);  // seconds of the last run of each
  for (int round = 0; round < options.repeat; ++round) {
    for (size_t i = 0; i < rows.size(); ++i) {
      ScalingRow& row = rows[i];
      if (!row.refusal.empty()) continue;
      const Clock::time_point start = Clock::now();
      try {
        row.runs.push_back(run_once(options, row));
      } catch (const JobError& error) {
        row.refusal = error.marked();
        row.runs.clear();
      }
      taken[i] = std::chrono::duration<double>(Clock::now() - start).count();
      // Those that did not run yet take as long for each device as this one did.
      double left = 0;
      for (size_t j = 0; j < rows.size(); ++j) {
        const double one = taken[j] > 0 ? taken[j] : taken[i] * rows[j].devices / row.devices;
        if (rows[j].refusal.empty()) left += one * (options.repeat - round - (j <= i ? 1 : 0));
      }
      const std::string outcome =
          row.refusal.empty() ? fmt::format("{:.2f} samples/s", row.runs.back()) : row.refusal;
      progress(fmt::format("round {}/{}, {} on {} device{}: {}; about {:.0f} min left", round + 1,
                           options.repeat, row.precision, row.devices, row.devices == 1 ? "" : "s",
                           outcome, left / 60));
    }
  }
  compare(rows);
  return rows;
}

void compare(std::vector<ScalingRow>& rows) {
  for (ScalingRow& row : rows) {
    row.samples_per_second = row.runs.empty() ? 0 : median(row.runs);
  }
  for (ScalingRow& row : rows) {
    if (row.runs.empty()) continue;
    const ScalingRow* fewest = &row;
    for (const ScalingRow& other : rows) {
      if (other.precision == row.precision && !other.runs.empty() &&
          other.devices < fewest->devices) {
        fewest = &other;
      }
    }
    row.speed_up = row.samples_per_second / fewest->samples_per_second;
    const ScalingRow* full = find_row(rows, row.devices, "fp32");
    if (full != nullptr) row.over_float32 = row.samples_per_second / full->samples_per_second;
  }
}

std::string to_table(const std::vector<ScalingRow>& rows, const ScalingOptions& options) {
  std::string text = fmt::format(
      "{}, {} samples per device, {} thread{} per device, medians of {} runs\n", options.model,
      options.batch, threads_of(options), threads_of(options) == 1 ? "" : "s", options.repeat);
  text += fmt::format("{:<10} {:>8} {:>7} {:>11} {:>9} {:>10} {:>10}\n", "precision", "devices",
                      "batch", "samples/s", "speed-up", "of fp32", "spread");
  bool shared = false;
  for (const ScalingRow& row : rows) {
    const std::string devices = fmt::format("{}{}", row.devices, row.shares_cores ? "*" : "");
    shared = shared || row.shares_cores;
    if (row.runs.empty()) {
      text += fmt::format("{:<10} {:>8} {}\n", row.precision, devices, row.refusal);
      continue;
    }
    const auto [least, most] = std::minmax_element(row.runs.begin(), row.runs.end());
    text += fmt::format("{:<10} {:>8} {:>7} {:>11.2f} {:>8.2f}x {:>10} {:>9.0f}%\n", row.precision,
                        devices, row.devices * options.batch, row.samples_per_second, row.speed_up,
                        row.over_float32 > 0 ? fmt::format("{:.2f}x", row.over_float32) : "-",
                        100 * (*most - *least) / row.samples_per_second);
  }
  if (shared) {
    text += fmt::format(
        "* These devices share the {} core{} of this machine, so more of them cannot be faster.\n",
        options.cores, options.cores == 1 ? "" : "s");
  }
  return text;
}

Json to_json(const std::vector<ScalingRow>& rows, const ScalingOptions& options) {
  Json json = {{"model", options.model},   {"batch_per_device", options.batch},
               {"repeat", options.repeat}, {"steps", options.steps},
               {"cores", options.cores},   {"threads_per_device", threads_of(options)}};
  json["rows"] = Json::array();
  for (const ScalingRow& row : rows) {
    Json entry = {{"precision", row.precision},
                  {"devices", row.devices},
                  {"global_batch", row.devices * options.batch},
                  {"shares_cores", row.shares_cores},
                  {"runs", row.runs},
                  {"samples_per_second", row.samples_per_second},
                  {"speed_up", row.speed_up}};
    if (row.over_float32 > 0) entry["over_fp32"] = row.over_float32;
    if (!row.refusal.empty()) entry["refusal"] = row.refusal;
    json["rows"].push_back(entry);
  }
  return json;
}

}  // namespace millrace::bench
