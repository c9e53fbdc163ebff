#include "bench/single.h"

#include <fmt/format.h>

#include <charconv>
#include <memory>

#include "base/error.h"
#include "base/median.h"
#include "base/text.h"
#include "bench/line_process.h"

namespace millrace::bench {
namespace {

constexpr const char* kPython = "/usr/bin/python3";  // Debian's, which has Debian's PyTorch

// One of the processes that take turns.
struct StepRunner {
  std::string name;
  std::unique_ptr<LineProcess> process;
  std::vector<double> seconds;

  void step(bool counts) {
    const double time = process->ask("step").at("seconds").get<double>();
    if (counts) seconds.push_back(time);
  }
};

StepRunner start_millrace(const SingleOptions& options, const SingleJob& job) {
  return {
      "millrace",
      std::make_unique<LineProcess>(std::vector<std::string>{
          options.program.string(), "bench", "steps", "--model", job.model, "--batch",
          std::to_string(job.batch), "--image", std::to_string(options.image),
          "--threads-per-device", std::to_string(options.threads), "--conv-algo", job.algorithm}),
      {}};
}

StepRunner start_peer(const SingleOptions& options, const SingleJob& job,
                      const std::string& layout) {
  return {layout,
          std::make_unique<LineProcess>(std::vector<std::string>{
              kPython, options.peer_script.string(), "--server", "--model", job.model, "--batch",
              std::to_string(job.batch), "--image", std::to_string(options.image), "--threads",
              std::to_string(options.threads), "--layout", layout}),
          {}};
}

const SingleRow* earlier_single_row(const std::vector<SingleRow>& rows, const SingleJob& job) {
  for (const SingleRow& row : rows) {
    if (row.job.model == job.model && row.job.batch == job.batch &&
        row.peer_samples_per_second > 0) {
      return &row;
    }
  }
  return nullptr;
}

SingleRow run_job(const SingleOptions& options, const SingleJob& job, const SingleRow* earlier,
                  const std::function<void(const std::string&)>& progress) {
  SingleRow row;
  row.job = job;
  std::vector<StepRunner> runners;
  runners.push_back(start_millrace(options, job));
  runners[0].process->ask("");
  if (options.peer && earlier == nullptr) {
    for (const char* layout : {"nchw", "nhwc"}) {
      runners.push_back(start_peer(options, job, layout));
      runners.back().process->ask("");
    }
  }
  Json limit;
  for (int round = 0; round < options.warm_up + options.rounds; ++round) {
    for (StepRunner& runner : runners) runner.step(round >= options.warm_up);
    if (round == 0) {
      const Json memory = runners[0].process->ask("memory");
      row.peak_rss_bytes = memory.at("peak_rss_bytes").get<int64_t>();
      row.arena_bytes = memory.at("arena_bytes").get<int64_t>();
    }
    if (options.limit && round >= options.warm_up) limit = runners[0].process->ask("limit");
    if (round < options.warm_up) continue;
    std::string line =
        fmt::format("{} round {}/{}:", job.model, round - options.warm_up + 1, options.rounds);
    for (const StepRunner& runner : runners) {
      line += fmt::format(" {} {:.2f} s", runner.name, runner.seconds.back());
    }
    progress(line);
  }
  const auto batch = static_cast<double>(job.batch);
  const double seconds = median(runners[0].seconds);
  row.samples_per_second = batch / seconds;
  if (!limit.is_null()) {
    const double least = limit.at("seconds").get<double>();
    row.limit_samples_per_second = batch / least;
    row.share_of_limit = least / seconds;
    progress(fmt::format("{} limit: convolution {:.2f} s, linear {:.2f} s, batch norm {:.2f} s",
                         job.model, limit.at("convolution").get<double>(),
                         limit.at("linear").get<double>(), limit.at("batch_norm").get<double>()));
  }
  for (size_t i = 1; i < runners.size(); ++i) {
    const Json last = runners[i].process->ask("quit");
    const double speed = batch / median(runners[i].seconds);
    if (speed <= row.peer_samples_per_second) continue;
    row.peer_samples_per_second = speed;
    row.peer_layout = runners[i].name;
    row.peer_peak_rss_bytes = last.at("peak_rss_bytes").get<int64_t>();
  }
  if (earlier != nullptr) {
    row.peer_samples_per_second = earlier->peer_samples_per_second;
    row.peer_layout = earlier->peer_layout;
    row.peer_peak_rss_bytes = earlier->peer_peak_rss_bytes;
  }
  return row;
}

std::string ratio(double value) { return value > 0 ? fmt::format("{:.2f}x", value) : "-"; }

}  // namespace

SingleJob parse_single_job(const std::string& text) {
  const std::vector<std::string> parts = split(text, ':');
  SingleJob job;
  if (parts.size() >= 2 && parts.size() <= 3) {
    job.model = parts[0];
    const char* end = parts[1].data() + parts[1].size();
    const auto [stop, status] = std::from_chars(parts[1].data(), end, job.batch);
    if (parts.size() == 3) job.algorithm = parts[2];
    if (status == std::errc() && stop == end && job.batch > 0) return job;
  }
  fail_input("‹jobs› has '{}', which is not MODEL:BATCH or MODEL:BATCH:ALGORITHM.", text);
}

double SingleRow::speed_ratio() const {
  return peer_samples_per_second > 0 ? samples_per_second / peer_samples_per_second : 0;
}

double SingleRow::memory_ratio() const {
  return peer_peak_rss_bytes > 0
             ? static_cast<double>(peak_rss_bytes) / static_cast<double>(peer_peak_rss_bytes)
             : 0;
}

std::vector<SingleRow> run_single(const SingleOptions& options,
                                  const std::function<void(const std::string&)>& progress) {
  if (options.peer && !std::filesystem::exists(options.peer_script)) {
    fail_input(
        "‹peer_script› names '{}', which does not exist; run from the repository's root, "
        "give its path, or leave PyTorch out with ‹no_peer›.",
        options.peer_script.string());
  }
  std::vector<SingleRow> rows;
  for (const SingleJob& job : options.jobs) {
    rows.push_back(run_job(options, job, earlier_single_row(rows, job), progress));
  }
  return rows;
}

std::string to_table(const std::vector<SingleRow>& rows) {
  std::string text = fmt::format(
      "{:<12} {:>5} {:<9} {:>10} {:>10} {:>7} {:>9} {:>11} {:>11} {:>7}\n", "model", "batch",
      "conv", "samples/s", "PyTorch", "speed", "of limit", "memory", "PyTorch", "memory");
  for (const SingleRow& row : rows) {
    text += fmt::format("{:<12} {:>5} {:<9} {:>10.2f} {:>10.2f} {:>7} {:>9} {:>11} {:>11} {:>7}\n",
                        row.job.model, row.job.batch, row.job.algorithm, row.samples_per_second,
                        row.peer_samples_per_second, ratio(row.speed_ratio()),
                        row.share_of_limit > 0 ? fmt::format("{:.2f}", row.share_of_limit) : "-",
                        format_bytes(static_cast<uint64_t>(row.peak_rss_bytes)),
                        format_bytes(static_cast<uint64_t>(row.peer_peak_rss_bytes)),
                        ratio(row.memory_ratio()));
  }
  return text;
}

Json to_json(const std::vector<SingleRow>& rows) {
  Json list = Json::array();
  for (const SingleRow& row : rows) {
    list.push_back({{"model", row.job.model},
                    {"batch", row.job.batch},
                    {"convolution", row.job.algorithm},
                    {"samples_per_second", row.samples_per_second},
                    {"peak_rss_bytes", row.peak_rss_bytes},
                    {"arena_bytes", row.arena_bytes},
                    {"limit_samples_per_second", row.limit_samples_per_second},
                    {"share_of_limit", row.share_of_limit},
                    {"peer", "pytorch"},
                    {"peer_layout", row.peer_layout},
                    {"peer_samples_per_second", row.peer_samples_per_second},
                    {"peer_peak_rss_bytes", row.peer_peak_rss_bytes},
                    {"speed_ratio", row.speed_ratio()},
                    {"memory_ratio", row.memory_ratio()}});
  }
  return list;
}

}  // namespace millrace::bench
