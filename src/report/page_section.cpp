#include "report/page_section.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "report/evaluation_section.h"
#include "report/page_curves.h"
#include "report/page_trace.h"
#include "report/published_section.h"
#include "report/tables.h"

namespace millrace::report {
namespace {

using Kind = RunFile::Kind;

constexpr size_t kMostBars = 64;   // of a figure; tables have them all
constexpr size_t kMostShares = 6;  // of a figure

std::string tile(const std::string& name, const std::string& value) {
  return fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", escaped(name), escaped(value));
}

class Section {
 public:
  Section(const Run& run, const RunFacts& facts, PageParts& page)
      : run_(run), facts_(facts), page_(page), index_(page.data["runs"].size()) {
    page.data["runs"].push_back({{"name", run.name}});
    summary_ = run.find(Kind::summary);
    plan_ = run.find(Kind::plan);
    metrics_ = run.find(Kind::metrics);
  }

  void add() {
    add_tiles();
    add_curves();
    add_evaluations();
    for (const RunFile& file : run_.files) {
      if (file.kind == Kind::evaluation) add_evaluation_section(file, page_.pictures, page_);
    }
    add_prediction();
    add_memory();
    add_traces();
    add_settings();
  }

 private:
  Json& own() { return page_.data["runs"][index_]; }

  std::vector<Source> sources(std::initializer_list<const RunFile*> files) const {
    std::vector<Source> found;
    for (const RunFile* file : files) {
      if (file != nullptr) found.push_back(page_.source(*file));
    }
    return found;
  }

  void add_card(const char* title, const char* kind, const std::string& caption,
                std::initializer_list<const RunFile*> files) {
    page_.body += card(title, fmt::format("{}/{}", kind, index_), caption, sources(files));
  }

  void add_table(Table table, std::initializer_list<const RunFile*> files) {
    if (table.rows.empty()) return;
    table.sources = sources(files);
    page_.body += to_html(table);
  }

  void add_tiles() {
    std::string tiles;
    const auto add = [&](const char* name, const std::optional<double>& value, const char* unit) {
      if (value) tiles += tile(name, fmt::format("{:.4g}{}", *value, unit));
    };
    add("samples per second", facts_.samples_per_second, "");
    add("seconds per step", facts_.seconds_per_step, " s");
    if (!facts_.samples_per_second) add("predicted samples per second", facts_.predicted_rate, "");
    if (!facts_.seconds_per_step) add("predicted seconds per step", facts_.predicted_seconds, " s");
    add("last loss", facts_.last_loss, "");
    if (!facts_.evaluations.empty()) {
      const std::optional<double> right = facts_.evaluations.back().figure("top1");
      if (right) add("accuracy", *right * 100, " %");
    }
    add("steps skipped", facts_.skipped_steps, "");
    if (facts_.bubble) add("idle time of devices", *facts_.bubble * 100, " %");
    const auto add_size = [&](const char* name, double bytes) {
      if (bytes >= 0 && bytes < 9e18) {
        tiles += tile(name, format_bytes(static_cast<uint64_t>(bytes)));
      }
    };
    if (!facts_.stage_memory.empty()) {
      add_size("fullest device",
               *std::max_element(facts_.stage_memory.begin(), facts_.stage_memory.end()));
    }
    if (facts_.process_memory) add_size("memory of the process", *facts_.process_memory);
    if (!tiles.empty()) page_.body += "<dl class=\"tiles\">" + tiles + "</dl>\n";
  }

  // Shares of each evaluation by step, once there are two.
  void add_accuracy() {
    if (facts_.evaluations.size() < 2) return;
    Json lines = Json::array();
    for (const auto& [name, value] : facts_.evaluations.front().figures) {
      if (name.ends_with("loss") || name == "pairs" || lines.size() >= kMostShares) continue;
      Json points = Json::array();
      for (const Evaluation& evaluation : facts_.evaluations) {
        const std::optional<double> figure = evaluation.figure(name);
        if (figure) points.push_back({evaluation.step, *figure});
      }
      lines.push_back({{"name", name}, {"points", points}});
    }
    if (lines.empty()) return;
    own()["accuracy"] = lines;
    add_card("Accuracy", "accuracy", "Of each evaluation.",
             {metrics_ != nullptr ? metrics_ : summary_});
  }

  void add_curves() {
    const CurveData curves = curves_of(facts_.points);
    if (curves.steps == 0) return;
    own()["metrics"] = curves.json;
    const RunFile* file = metrics_ != nullptr ? metrics_ : summary_;
    if (!facts_.evaluations.empty() && metrics_ != nullptr) {
      Json list = Json::array();
      for (const Evaluation& evaluation : facts_.evaluations) {
        const std::optional<double> loss = evaluation.figure("loss");
        if (loss) list.push_back({{"step", evaluation.step}, {"loss", *loss}});
      }
      own()["evaluations"] = list;
    }
    if (facts_.predicted_rate) own()["predicted_samples_per_second"] = *facts_.predicted_rate;
    const std::string thinned =
        curves.stride > 1
            ? fmt::format(" Each point is the mean of {} steps, the band their range.",
                          curves.stride)
            : std::string();
    page_.body += "<div class=\"cards\">\n";
    add_card("Loss", "loss", "Training loss of each step." + thinned, {file});
    add_accuracy();
    if (curves.has_rate) {
      add_card("Throughput", "rate", "Samples of the whole job per second." + thinned, {file});
    }
    if (curves.changes_learning_rate) {
      add_card("Learning rate", "learning_rate", "As the schedule set it." + thinned, {file});
    }
    if (curves.changes_loss_scale) {
      add_card("Loss scale", "loss_scale",
               "It falls where gradients overflowed and the step was skipped." + thinned, {file});
    }
    page_.body += "</div>\n";
  }

  void add_evaluations() {
    add_table(evaluation_table(facts_.evaluations), {metrics_ != nullptr ? metrics_ : summary_});
  }

  void add_prediction() {
    const Table table = prediction_table(run_, facts_);
    if (table.rows.empty()) return;
    add_table(table, {plan_, summary_ != nullptr ? summary_ : metrics_});
    if (facts_.predicted_error) {
      page_.body += fmt::format(
          "<p class=\"small\">The prediction itself expected to be off by about {:.1f} %.</p>\n",
          100 * *facts_.predicted_error);
    }
    if (!facts_.predicted_rate || !facts_.samples_per_second) return;
    own()["prediction"] = {{{"name", "predicted"}, {"value", *facts_.predicted_rate}},
                           {{"name", "measured"}, {"value", *facts_.samples_per_second}}};
    add_card("Predicted against measured", "prediction", "Samples per second.",
             {plan_, summary_ != nullptr ? summary_ : metrics_});
  }

  void add_memory() {
    const RunFile* file = summary_ != nullptr ? summary_ : plan_;
    if (file == nullptr) return;
    const std::vector<std::string> parts = memory_parts();
    Json rows = Json::array();
    auto limit = json_number(file->json, "device_memory_bytes");
    if (!limit && plan_ != nullptr) limit = json_number(plan_->json, "device_memory_bytes");
    for (const Json& device : json_member(file->json, "devices")) {
      if (rows.size() >= kMostBars) break;
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
    add_card("Memory of each device", "memory",
             limit ? "At its peak. The line is what a device has." : "At its peak, by use.",
             {file});
    add_table(memory_table(file->json), {file});
  }

  void add_traces() {
    const RunFile* measured = run_.find_trace(false);
    const RunFile* simulated = run_.find_trace(true);
    if (measured != nullptr && simulated != nullptr) {
      add_timeline({simulated, measured}, "Timeline: predicted above measured");
    }
    for (const RunFile& file : run_.files) {
      const bool together =
          measured != nullptr && simulated != nullptr && (&file == measured || &file == simulated);
      if (file.kind != Kind::trace || together) continue;
      add_timeline({&file}, fmt::format("Timeline{}", file.simulated ? ", predicted" : ""));
    }
  }

  void add_timeline(const std::vector<const RunFile*>& files, const std::string& title) {
    std::vector<TimelinePart> parts;
    std::vector<Source> links;
    std::string caption;
    for (const RunFile* file : files) {
      const TraceFacts& facts = facts_.traces.at(file);
      const char* group = file->simulated ? "predicted" : "measured";
      parts.push_back({&file->trace, facts.shown, group});
      links.push_back(page_.source(*file));
      caption += fmt::format(
          "{}{} Devices compute nothing for {:.1f} % of the time. ",
          files.size() > 1 ? std::string(file->simulated ? "Predicted: " : "Measured: ") : "",
          sentence_of(facts.times), 100 * facts.times.bubble_of_total());
      if (file->trace.dropped > 0) {
        caption += fmt::format("{} later events found no room in the trace. ", file->trace.dropped);
      }
    }
    if (files.size() > 1) {
      caption += "Both have one time scale, and the steps that it opens with begin together. ";
    }
    PageTimeline timeline = page_timeline(parts, page_.events_of_timeline);
    caption +=
        "Numbers in bars are micro-batches. Wheel, pinch or buttons zoom, dragging moves; with the "
        "keyboard + and -, arrows, and 0 for everything." +
        timeline.note;
    const size_t index = page_.data["timelines"].size();
    page_.data["timelines"].push_back(std::move(timeline.json));
    page_.body += card(title, fmt::format("timeline/{}", index), caption, links);
    for (const RunFile* file : files) add_times(*file, files.size() > 1);
    for (const RunFile* file : files) add_memory_over_time(*file);
  }

  void add_times(const RunFile& file, bool named) {
    const TimeReport& times = facts_.traces.at(&file).times;
    for (Table table : {time_table(times), wait_table(times)}) {
      if (named) table.caption += file.simulated ? ", predicted" : ", measured";
      add_table(std::move(table), {&file});
    }
  }

  void add_memory_over_time(const RunFile& file) {
    const RunFile* sizes = summary_ != nullptr ? summary_ : plan_;
    if (sizes == nullptr || (file.simulated && run_.find_trace(false) != nullptr)) return;
    if (own().contains("memory_over_time")) return;
    const Json curves = memory_over_time(file.trace, facts_.traces.at(&file).shown, sizes->json);
    if (curves.is_null()) return;
    own()["memory_over_time"] = curves;
    add_card("Memory over time", "memory_over_time",
             "Of the first device of each stage: what is always there, and the activations of the "
             "micro-batches that are under way, over the steps that the timeline opens with. The "
             "block itself is as large as the peak from the start.",
             {&file, sizes});
  }

  void add_settings() {
    const RunFile* file = summary_ != nullptr ? summary_ : plan_;
    if (file == nullptr) return;
    add_table(environment_table(json_member(file->json, "environment")), {file});
    Table settings = settings_table(file->json);
    if (settings.rows.empty()) return;
    settings.sources = {page_.source(*file)};
    page_.body += "<details><summary>All settings of the job</summary>\n" + to_html(settings) +
                  "</details>\n";
  }

  const Run& run_;
  const RunFacts& facts_;
  PageParts& page_;
  const size_t index_;
  const RunFile* summary_ = nullptr;
  const RunFile* plan_ = nullptr;
  const RunFile* metrics_ = nullptr;
};

}  // namespace

std::string card(const std::string& title, const std::string& figure, const std::string& caption,
                 const std::vector<Source>& sources) {
  return fmt::format(
      "<div class=\"card\"><h3>{}</h3><figure><div class=\"chart\" data-figure=\"{}\"></div>"
      "<figcaption>{} {}</figcaption></figure></div>\n",
      escaped(title), figure, escaped(caption), links_to(sources));
}

void add_run_section(const Run& run, const RunFacts& facts, PageParts& page) {
  Section(run, facts, page).add();
}

void add_published_section(const RunFile& file, PageParts& page) {
  page.data["runs"].push_back(Json::object());
  const std::vector<Source> sources = {page.source(file)};
  page.body += fmt::format("<p class=\"lead\">{}</p>\n", escaped(published_sentence(file.json)));
  Table errors = published_errors(file.json), rows = published_table(file.json);
  errors.sources = rows.sources = sources;
  page.body += to_html(errors);
  const size_t index = page.data["published"].size();
  page.data["published"].push_back(published_points(file.json));
  page.body += card("Error of each prediction", fmt::format("published/{}", index),
                    "Predicted over published time, of the rows with a published time. Right of "
                    "the middle the prediction is slower than what was measured.",
                    sources);
  page.body += to_html(rows);
}

}  // namespace millrace::report
