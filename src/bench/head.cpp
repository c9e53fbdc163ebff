#include "bench/head.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/text.h"
#include "bench/head_server.h"
#include "bench/line_process.h"

namespace millrace::bench {
namespace {

// In which the threads of the process before stop waiting for work by spinning.
constexpr std::chrono::milliseconds kPause{100};

using Progress = std::function<void(const std::string&)>;

std::vector<std::string> own_command(const HeadBenchOptions& options, int64_t classes,
                                     const std::string& mode) {
  return {options.program.string(),
          "bench",
          "head-steps",
          "--classes",
          std::to_string(classes),
          "--sample-rate",
          mode == "pfc" ? fmt::format("{}", options.sample_rate) : "1",
          "--batch",
          std::to_string(options.batch),
          "--dimension",
          std::to_string(options.dimension),
          "--threads",
          std::to_string(options.threads),
          "--head-dtype",
          options.storage};
}

// On one device dp and mp are the same work.
std::string peer_mode(const std::string& mode) { return mode == "pfc" ? "pfc" : "mp"; }

// How PyTorch is run: which centres its optimizer goes over, and whose memory it takes.
struct PeerWay {
  std::string update;
  std::string allocator;  // a library; empty: the usual one

  std::string description() const {
    return fmt::format("{} updates, {} allocator", update,
                       allocator.empty() ? "usual" : "tcmalloc");
  }
};

std::string tcmalloc() {
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"}) {
    const auto library = std::filesystem::path(folder) / "libtcmalloc_minimal.so.4";
    if (std::filesystem::exists(library)) return library.string();
  }
  return {};
}

// Those that are asked for; with every class the updates are one and the same.
std::vector<PeerWay> peer_ways(const HeadBenchOptions& options, const std::string& mode) {
  std::vector<std::string> updates = {options.peer_update};
  if (options.peer_update == "best") updates = {"sampled", "dense"};
  if (peer_mode(mode) == "mp") updates.resize(1);
  std::vector<PeerWay> ways;
  for (const std::string& update : updates) {
    ways.push_back({update, {}});
    if (const std::string library = tcmalloc(); !library.empty()) ways.push_back({update, library});
  }
  return ways;
}

std::vector<std::string> peer_command(const HeadBenchOptions& options, int64_t classes,
                                      const std::string& mode, const PeerWay& way) {
  return {"/usr/bin/env",
          "LD_PRELOAD=" + way.allocator,
          options.peer_python.string(),
          options.peer_script.string(),
          "--classes",
          std::to_string(classes),
          "--mode",
          peer_mode(mode),
          "--update",
          way.update,
          "--sample-rate",
          fmt::format("{}", options.sample_rate),
          "--batch",
          std::to_string(options.batch),
          "--dimension",
          std::to_string(options.dimension),
          "--threads",
          std::to_string(options.threads)};
}

// PyTorch keeps up to seven copies of the centres with every class, five with a sample.
bool peer_fits(const HeadBenchOptions& options, int64_t classes, const std::string& mode) {
  const int64_t centres = classes * options.dimension * static_cast<int64_t>(sizeof(float));
  const int64_t copies = peer_mode(mode) == "mp" ? 7 : 5;
  return centres * copies < available_memory();
}

// A process that takes part, and its times.
struct HeadRunner {
  LineProcess process;
  std::vector<double> seconds = {};

  explicit HeadRunner(const std::vector<std::string>& command) : process(command) {
    process.ask("");
  }

  void step(bool counts) {
    std::this_thread::sleep_for(kPause);
    const double time = process.ask("step").at("seconds").get<double>();
    if (counts) seconds.push_back(time);
  }
};

// The way whose second and third step are the fastest.
PeerWay best_peer_way(const HeadBenchOptions& options, const HeadRow& row,
                      const Progress& progress) {
  PeerWay best;
  double least = std::numeric_limits<double>::infinity();
  for (const PeerWay& way : peer_ways(options, row.mode)) {
    HeadRunner runner(peer_command(options, row.classes, row.mode, way));
    for (int step = 0; step < 3; ++step) runner.step(step > 0);
    const double seconds = *std::min_element(runner.seconds.begin(), runner.seconds.end());
    progress(fmt::format("{} {}: PyTorch with {}: {:.3f} s", row.classes, row.mode,
                         way.description(), seconds));
    if (seconds >= least) continue;
    least = seconds;
    best = way;
  }
  return best;
}

const HeadRow* earlier_head_row(const std::vector<HeadRow>& rows, int64_t classes,
                                const std::string& mode) {
  for (const HeadRow& row : rows) {
    if (row.classes == classes && peer_mode(row.mode) == peer_mode(mode) &&
        row.peer_samples_per_second > 0) {
      return &row;
    }
  }
  return nullptr;
}

void measure(const HeadBenchOptions& options, const HeadRow* earlier, HeadRow& row,
             const Progress& progress) {
  std::unique_ptr<HeadRunner> peer;
  if (options.peer && earlier == nullptr) {
    if (peer_fits(options, row.classes, row.mode)) {
      peer = std::make_unique<HeadRunner>(
          peer_command(options, row.classes, row.mode, best_peer_way(options, row, progress)));
    } else {
      progress(fmt::format("{} {}: PyTorch left out, it would not fit into memory", row.classes,
                           row.mode));
    }
  }
  HeadRunner own(own_command(options, row.classes, row.mode));
  for (int round = 0; round < options.warm_up + options.steps; ++round) {
    own.step(round >= options.warm_up);
    if (peer) peer->step(round >= options.warm_up);
    if (round < options.warm_up) continue;
    progress(fmt::format("{} {} step {}/{}: {:.3f} s{}", row.classes, row.mode,
                         round - options.warm_up + 1, options.steps, own.seconds.back(),
                         peer ? fmt::format(", PyTorch {:.3f} s", peer->seconds.back()) : ""));
  }
  const Json memory = own.process.ask("memory");
  const auto batch = static_cast<double>(options.batch);
  row.seconds_per_step = median(own.seconds);
  row.limit_seconds = own.process.ask("limit").at("seconds").get<double>();
  row.samples_per_second = batch / row.seconds_per_step;
  row.peak_bytes = memory.at("arena_bytes").get<int64_t>();
  row.process_peak_rss_bytes = memory.at("peak_rss_bytes").get<int64_t>();
  if (peer) {
    row.peer_samples_per_second = batch / median(peer->seconds);
    row.peer_peak_rss_bytes = peer->process.ask("quit").at("peak_rss_bytes").get<int64_t>();
  } else if (earlier != nullptr) {
    row.peer_samples_per_second = earlier->peer_samples_per_second;
    row.peer_peak_rss_bytes = earlier->peer_peak_rss_bytes;
  }
}

void check_head_options(const HeadBenchOptions& options) {
  for (const int64_t classes : options.classes) {
    if (classes < 1 || classes > INT32_MAX) {
      fail_input("‹classes› has {}; it must lie between 1 and {}.", classes, INT32_MAX);
    }
  }
  for (const std::string& mode : options.modes) {
    if (mode != "dp" && mode != "mp" && mode != "pfc") {
      fail_input("‹modes› has '{}'; choose among dp, mp and pfc.", mode);
    }
  }
  if (!(options.sample_rate > 0 && options.sample_rate <= 1)) {
    fail_input("‹sample_rate› is {}; it must be above 0 and at most 1.", options.sample_rate);
  }
  if (options.peer_update != "best" && options.peer_update != "sampled" &&
      options.peer_update != "dense") {
    fail_input("‹peer_update› is '{}'; choose among best, sampled and dense.", options.peer_update);
  }
  if (options.batch < 1 || options.dimension < 1 || options.steps < 1 || options.threads < 1) {
    fail_input("‹batch›, ‹dimension›, ‹steps› and ‹threads› must be at least 1.");
  }
  if (options.peer && !std::filesystem::exists(options.peer_script)) {
    fail_input(
        "‹peer_script› names '{}', which does not exist; run from the repository's root or give "
        "its path.",
        options.peer_script.string());
  }
}

std::string shown_ratio(double value) { return value > 0 ? fmt::format("{:.2f}x", value) : "-"; }

std::string bytes(int64_t value) {
  return value > 0 ? format_bytes(static_cast<uint64_t>(value)) : "-";
}

}  // namespace

double HeadRow::speed_ratio() const {
  return peer_samples_per_second > 0 ? samples_per_second / peer_samples_per_second : 0;
}

double HeadRow::share_of_limit() const {
  return seconds_per_step > 0 ? limit_seconds / seconds_per_step : 0;
}

double HeadRow::memory_ratio() const {
  if (peer_peak_rss_bytes == 0) return 0;
  return static_cast<double>(process_peak_rss_bytes) / static_cast<double>(peer_peak_rss_bytes);
}

std::vector<HeadRow> run_head_bench(const HeadBenchOptions& options, const Progress& progress) {
  check_head_options(options);
  std::vector<HeadRow> rows;
  for (const int64_t classes : options.classes) {
    for (const std::string& mode : options.modes) {
      HeadRow row;
      row.classes = classes;
      row.mode = mode;
      try {
        measure(options, earlier_head_row(rows, classes, mode), row, progress);
      } catch (const JobError& error) {
        row.refusal = error.marked();
        progress(fmt::format("{} {}: {}", classes, mode, error.marked()));
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::string to_table(const std::vector<HeadRow>& rows) {
  std::string text = fmt::format(
      "{:>10} {:<5} {:>10} {:>9} {:>10} {:>8} {:>11} {:>11} {:>11} {:>8}\n", "identities", "mode",
      "samples/s", "of limit", "PyTorch", "speed", "device", "process", "PyTorch", "memory");
  for (const HeadRow& row : rows) {
    text += fmt::format(
        "{:>10} {:<5} {:>10.2f} {:>9.2f} {:>10.2f} {:>8} {:>11} {:>11} {:>11} {:>8}\n", row.classes,
        row.mode, row.samples_per_second, row.share_of_limit(), row.peer_samples_per_second,
        shown_ratio(row.speed_ratio()), bytes(row.peak_bytes), bytes(row.process_peak_rss_bytes),
        bytes(row.peer_peak_rss_bytes), shown_ratio(row.memory_ratio()));
  }
  return text;
}

Json to_json(const std::vector<HeadRow>& rows, const HeadBenchOptions& options) {
  Json list = Json::array();
  for (const HeadRow& row : rows) {
    Json entry = {{"classes", row.classes},
                  {"mode", row.mode},
                  {"samples_per_second", row.samples_per_second},
                  {"seconds_per_step", row.seconds_per_step},
                  {"limit_seconds", row.limit_seconds},
                  {"peak_bytes", row.peak_bytes},
                  {"process_peak_rss_bytes", row.process_peak_rss_bytes},
                  {"sample_rate", row.mode == "pfc" ? options.sample_rate : 1.0},
                  {"head_dtype", options.storage},
                  {"batch", options.batch},
                  {"dimension", options.dimension},
                  {"threads", options.threads}};
    if (!row.refusal.empty()) entry["reason"] = row.refusal;
    if (row.peer_samples_per_second > 0) {
      entry["peer"] = "pytorch";
      entry["peer_samples_per_second"] = row.peer_samples_per_second;
      entry["peer_peak_rss_bytes"] = row.peer_peak_rss_bytes;
      entry["speed_ratio"] = row.speed_ratio();
      entry["memory_ratio"] = row.memory_ratio();
    }
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace millrace::bench
