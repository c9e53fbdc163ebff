#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/page/files.h"
#include "report/page_trace.h"
#include "report/published_section.h"
#include "report/tables.h"

namespace millrace {
namespace {

using Kind = RunFile::Kind;

constexpr size_t kMostPoints = 4000;  // of a curve

// JSON that may stand inside of a script element.
std::string script_text(const Json& json) {
  std::string safe;
  for (const char c : json.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

std::string card(const std::string& title, const std::string& figure, const std::string& caption) {
  return fmt::format(
      "<div class=\"card\"><h3>{}</h3><figure><div class=\"chart\" data-figure=\"{}\"></div>"
      "<figcaption>{}</figcaption></figure></div>\n",
      escaped(title), figure, escaped(caption));
}

std::string tile(const std::string& name, const std::string& value) {
  return fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", escaped(name), escaped(value));
}

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

class Page {
 public:
  explicit Page(const ReportOptions& options) : options_(options) {
    data_ = {{"runs", Json::array()}, {"traces", Json::array()}, {"published", Json::array()}};
  }

  std::string make(const RunSet& set) {
    std::vector<RunFacts> facts;
    for (const Run& run : set.runs) facts.push_back(facts_of(run));
    add_header(set, facts);
    for (size_t i = 0; i < set.runs.size(); ++i) add_run(set.runs[i], facts[i]);
    std::string sources;
    for (const Run& run : set.runs) {
      for (const RunFile& file : run.files) {
        sources += (sources.empty() ? "" : ", ") + escaped(file.path.filename().string());
      }
    }
    return fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta name=\"color-scheme\" content=\"light dark\">\n"
        "<link rel=\"icon\" href=\"data:,\">\n"
        "<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n{}"
        "</main>\n<footer>Made by Millrace from {}.</footer>\n"
        "<noscript><p class=\"note\">Curves and timelines need JavaScript.</p></noscript>\n"
        "<script type=\"application/json\" id=\"data\">{}</script>\n"
        "<script>\n{}{}{}</script>\n</body>\n</html>\n",
        escaped(title_), page_file("page.css"), body_, sources, script_text(data_),
        page_file("charts.js"), page_file("timeline.js"), page_file("page.js"));
  }

 private:
  void add_header(const RunSet& set, const std::vector<RunFacts>& facts) {
    const bool one = set.runs.size() == 1;
    several_ = !one;
    const bool compares = std::any_of(set.runs.begin(), set.runs.end(), [](const Run& run) {
      return run.find(Kind::published) != nullptr;
    });
    title_ = one && compares ? "Published measurements and predictions"
             : one           ? fmt::format("Run {}", set.runs[0].name)
                             : fmt::format("{} runs", set.runs.size());
    body_ += fmt::format("<header><h1>{}</h1>\n", escaped(title_));
    if (one && !compares) {
      body_ += fmt::format("<p class=\"lead\">{}</p>\n", escaped(sentence_of(facts[0])));
    }
    if (!one) {
      body_ += "<nav aria-label=\"Runs\"><ul>";
      for (size_t i = 0; i < facts.size(); ++i) {
        body_ += fmt::format("<li><a href=\"#run-{}\">{}</a></li>", i, escaped(facts[i].name));
      }
      body_ += "</ul></nav>\n";
    }
    body_ += "</header>\n<main>\n";
    for (const std::string& note : set.notes) {
      body_ += fmt::format("<p class=\"note\">{}</p>\n", escaped(note));
    }
    std::vector<RunFacts> trained;
    for (size_t i = 0; i < facts.size(); ++i) {
      if (set.runs[i].find(Kind::published) == nullptr) trained.push_back(facts[i]);
    }
    if (trained.empty()) return;
    body_ += to_html(run_table(trained));
    body_ += fmt::format(
        "<p class=\"lead\">An epoch counts {:.0f} images, as published tables do.{}</p>\n",
        kEpochImages,
        trained.size() > 1 ? " Speed-up is over the run of the same model on the fewest devices."
                           : "");
  }

  void add_run(const Run& run, const RunFacts& facts) {
    index_ = data_["runs"].size();
    data_["runs"].push_back({{"name", run.name}});
    body_ += fmt::format("<section id=\"run-{}\">\n", index_);
    if (const RunFile* published = run.find(Kind::published)) {
      add_published(published->json);
    } else {
      if (several_) {
        body_ += fmt::format("<h2>{}</h2>\n<p class=\"lead\">{}</p>\n", escaped(run.name),
                             escaped(sentence_of(facts)));
      }
      add_tiles(facts);
      add_curves(run, facts);
      add_prediction(run, facts);
      add_memory(run);
      for (const RunFile& file : run.files) {
        if (file.kind == Kind::trace) add_trace(run, file);
      }
      add_environment(run);
    }
    body_ += "</section>\n";
  }

  Json& own() { return data_["runs"][index_]; }
  std::string figure(const char* kind) const { return fmt::format("{}/{}", kind, index_); }

  void add_tiles(const RunFacts& facts) {
    std::string tiles;
    const auto add = [&](const char* name, const std::optional<double>& value, const char* unit) {
      if (value) tiles += tile(name, fmt::format("{:.4g}{}", *value, unit));
    };
    add("samples per second", facts.samples_per_second, "");
    add("seconds per step", facts.seconds_per_step, "");
    if (!facts.samples_per_second) add("predicted samples per second", facts.predicted_rate, "");
    if (!facts.seconds_per_step) add("predicted seconds per step", facts.predicted_seconds, "");
    add("last loss", facts.last_loss, "");
    if (facts.top1) add("accuracy", *facts.top1 * 100, " %");
    add("steps skipped", facts.skipped_steps, "");
    if (!facts.stage_memory.empty()) {
      const double most = *std::max_element(facts.stage_memory.begin(), facts.stage_memory.end());
      tiles += tile("fullest device", fmt::format("{:.4g} MiB", most / 1024 / 1024));
    }
    if (!tiles.empty()) body_ += "<dl class=\"tiles\">" + tiles + "</dl>\n";
  }

  void add_curves(const Run& run, const RunFacts& facts) {
    if (facts.points.empty()) return;
    Json steps = Json::array(), loss = steps, rate = steps, learning = steps, scale = steps;
    const size_t stride = (facts.points.size() + kMostPoints - 1) / kMostPoints;
    bool has_rate = false, has_scale = false, has_learning = false;
    for (size_t i = 0; i < facts.points.size(); i += stride) {
      const StepPoint& point = facts.points[i];
      steps.push_back(point.step);
      loss.push_back(or_null(point.loss));
      rate.push_back(or_null(point.samples_per_second));
      learning.push_back(or_null(point.learning_rate));
      scale.push_back(or_null(point.loss_scale));
      has_rate |= point.samples_per_second.has_value();
      has_learning |= point.learning_rate != facts.points.front().learning_rate;
      has_scale |= point.loss_scale.value_or(1) != 1;
    }
    own()["metrics"] = {{"steps", steps},
                        {"loss", loss},
                        {"samples_per_second", rate},
                        {"learning_rate", learning},
                        {"loss_scale", scale}};
    add_evaluations(run);
    if (facts.predicted_rate) own()["predicted_samples_per_second"] = *facts.predicted_rate;
    const std::string thinned =
        stride > 1 ? fmt::format(" Every {}th step is drawn.", stride) : std::string();
    body_ += "<div class=\"cards\">\n" + card("Loss", figure("loss"), "By step." + thinned);
    if (has_rate) {
      body_ += card("Throughput", figure("rate"), "Samples of the whole job per second." + thinned);
    }
    if (has_learning) body_ += card("Learning rate", figure("learning_rate"), "By step." + thinned);
    if (has_scale) {
      body_ += card("Loss scale", figure("loss_scale"),
                    "It falls where gradients overflowed and the step was skipped." + thinned);
    }
    body_ += "</div>\n";
  }

  void add_evaluations(const Run& run) {
    const RunFile* metrics = run.find(Kind::metrics);
    if (metrics == nullptr) return;
    Json list = Json::array();
    for (const Json& line : metrics->metrics) {
      if (json_text(line, "kind") != "evaluation") continue;
      const auto step = json_number(line, "step"), loss = json_number(line, "loss");
      if (step && loss) list.push_back({{"step", *step}, {"loss", *loss}});
    }
    if (!list.empty()) own()["evaluations"] = list;
  }

  void add_prediction(const Run& run, const RunFacts& facts) {
    const Table table = prediction_table(run, facts);
    if (table.rows.empty()) return;
    body_ += to_html(table);
    if (!facts.predicted_rate || !facts.samples_per_second) return;
    own()["prediction"] = {{{"name", "predicted"}, {"value", *facts.predicted_rate}},
                           {{"name", "measured"}, {"value", *facts.samples_per_second}}};
    body_ += card("Predicted against measured", figure("prediction"), "Samples per second.");
  }

  void add_memory(const Run& run) {
    const RunFile* file = run.find(Kind::summary);
    if (file == nullptr) file = run.find(Kind::plan);
    if (file == nullptr) return;
    const std::vector<std::string> parts = memory_parts();
    Json rows = Json::array();
    const auto limit = json_number(file->json, "device_memory_bytes");
    for (const Json& device : json_member(file->json, "devices")) {
      if (rows.size() >= kMostPageDevices) break;
      Json sizes = Json::array();
      for (const std::string& part : parts) {
        const auto size = json_number(json_member(device, "breakdown"), part.c_str());
        sizes.push_back(std::max(0.0, size.value_or(0)));
      }
      rows.push_back({{"name", fmt::format("stage {} · {}", json_text(device, "stage"),
                                           json_text(device, "id"))},
                      {"parts", sizes}});
      if (limit) rows.back()["limit"] = *limit;
    }
    if (rows.empty()) return;
    own()["memory"] = {{"parts", parts}, {"rows", rows}};
    body_ += card(
        "Memory of each device", figure("memory"),
        limit ? "The line is what a device has." : "What the device's memory holds at its peak.");
    body_ += to_html(memory_table(file->json));
  }

  void add_trace(const Run& run, const RunFile& file) {
    const Window window = steps_window(file.trace, options_.first_step, options_.steps);
    const TimeReport times = time_report(file.trace, steady_window(file.trace));
    int64_t left_out = 0;
    const size_t index = data_["traces"].size();
    data_["traces"].push_back(page_trace(file.trace, window, left_out));
    std::string caption = fmt::format(
        "{} Devices compute nothing for {:.1f} % of the time. Wheel or buttons zoom, dragging "
        "moves; with the keyboard + and -, arrows, and 0 for everything.",
        sentence_of(times), 100 * times.bubble_of_total());
    left_out += file.trace.dropped;
    if (left_out > 0) caption += fmt::format(" {} events are not shown.", left_out);
    body_ +=
        card("Timeline: " + file.path.filename().string(), fmt::format("trace/{}", index), caption);
    body_ += to_html(time_table(times));
    const Table waits = wait_table(times);
    if (!waits.rows.empty()) body_ += to_html(waits);
    const RunFile* summary = run.find(Kind::summary);
    if (summary == nullptr || own().contains("memory_over_time")) return;
    const Json curves = memory_over_time(file.trace, window, summary->json);
    if (curves.is_null()) return;
    own()["memory_over_time"] = curves;
    body_ += card("Memory over time", figure("memory_over_time"),
                  "Of the first device of each stage: what is always there, and the activations of "
                  "the micro-batches that are under way, over the steps that the timeline opens "
                  "with. The block itself is as large as the peak from the start.");
  }

  void add_environment(const Run& run) {
    const RunFile* file = run.find(Kind::summary);
    if (file == nullptr) return;
    const Table table = environment_table(json_member(file->json, "environment"));
    if (!table.rows.empty()) body_ += to_html(table);
  }

  void add_published(const Json& comparison) {
    body_ += fmt::format("<p class=\"lead\">{}</p>\n", escaped(published_sentence(comparison)));
    body_ += to_html(published_errors(comparison));
    const size_t index = data_["published"].size();
    data_["published"].push_back(published_points(comparison));
    body_ += card("Error of each prediction", fmt::format("published/{}", index),
                  "Predicted over published time, rows with a published time.");
    body_ += to_html(published_table(comparison));
  }

  const ReportOptions& options_;
  std::string title_;
  std::string body_;
  Json data_;
  size_t index_ = 0;  // of the run
  bool several_ = false;
};

}  // namespace

std::string report_page(const RunSet& set, const ReportOptions& options) {
  return Page(options).make(set);
}

}  // namespace millrace
