#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/page/files.h"
#include "report/page_section.h"
#include "report/published_section.h"
#include "report/tables.h"

namespace millrace::report {
namespace {

using Kind = RunFile::Kind;

constexpr size_t kMostEvents = 50000;  // of all timelines together
constexpr size_t kLeastEvents = 3000;  // of one
constexpr size_t kMostNotes = 20;
constexpr size_t kMostPictures = 96;  // of all runs together

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

bool is_published(const Run& run) { return run.find(Kind::published) != nullptr; }

std::string title_of(const RunSet& set) {
  if (set.runs.size() != 1) return fmt::format("{} runs", set.runs.size());
  if (is_published(set.runs[0])) return "Published measurements and predictions";
  return fmt::format("Run {}", set.runs[0].name);
}

void add_notes(const RunSet& set, PageParts& page) {
  const size_t shown = std::min(set.notes.size(), kMostNotes);
  for (size_t i = 0; i < shown; ++i) {
    page.body += fmt::format("<p class=\"note\">{}</p>\n", escaped(set.notes[i]));
  }
  if (shown < set.notes.size()) {
    page.body += fmt::format("<p class=\"note\">And {} more files with damage.</p>\n",
                             set.notes.size() - shown);
  }
}

void add_header(const RunSet& set, const std::vector<RunFacts>& facts, PageParts& page) {
  page.body += fmt::format("<header><h1>{}</h1>\n", escaped(title_of(set)));
  if (set.runs.size() == 1 && !is_published(set.runs[0])) {
    page.body += fmt::format("<p class=\"lead\">{}</p>\n", escaped(sentence_of(facts[0])));
  }
  if (set.runs.size() > 1) {
    page.body += "<nav aria-label=\"Runs\"><ul>";
    for (size_t i = 0; i < facts.size(); ++i) {
      page.body += fmt::format("<li><a href=\"#run-{}\">{}</a></li>", i, escaped(facts[i].name));
    }
    page.body += "</ul></nav>\n";
  }
  page.body += "</header>\n<main>\n";
  add_notes(set, page);
}

// "Speed-up is over …", if all runs have the same base; otherwise how it is chosen.
std::string speed_up_text(const std::vector<RunFacts>& runs) {
  if (runs.size() < 2) return "";
  const RunFacts* base = base_of(runs.front(), runs);
  const bool same = base != nullptr && std::all_of(runs.begin(), runs.end(), [&](const auto& run) {
                      return base_of(run, runs) == base;
                    });
  return same ? fmt::format(" Speed-up is over “{}”.", base->name)
              : " Speed-up is over the run of the same model on the fewest devices.";
}

void add_overview(const RunSet& set, const std::vector<RunFacts>& facts, PageParts& page) {
  std::vector<RunFacts> trained;
  for (size_t i = 0; i < facts.size(); ++i) {
    if (!is_published(set.runs[i])) trained.push_back(facts[i]);
  }
  if (trained.empty()) return;
  Table table = run_table(trained);
  if (set.runs.size() == 1) {
    for (const RunFile& file : set.runs[0].files) {
      if (file.kind != Kind::trace) table.sources.push_back(page.source(file));
    }
  }
  page.body += to_html(table);
  page.body += fmt::format(
      "<p class=\"small\">Batch: samples of a step on all devices. Of random images, an epoch "
      "(s/epoch) is the {:.0f} of ImageNet, as in published tables.{}</p>\n",
      kEpochImages, escaped(speed_up_text(trained)));
  add_comparison(trained, page);
}

std::string source_links(const RunSet& set, const PageParts& page) {
  std::vector<Source> sources;
  for (const Run& run : set.runs) {
    for (const RunFile& file : run.files) sources.push_back(page.source(file));
  }
  return links_to(sources);
}

}  // namespace

std::string report_page(const RunSet& set, const std::vector<RunFacts>& facts,
                        const std::filesystem::path& directory) {
  PageParts page;
  page.directory = directory;
  page.data = {{"runs", Json::array()}, {"timelines", Json::array()}, {"published", Json::array()}};
  const auto timelines =
      static_cast<size_t>(std::count_if(set.runs.begin(), set.runs.end(), [](const Run& run) {
        return run.find(Kind::trace) != nullptr;
      }));
  page.events_of_timeline = std::max(kLeastEvents, kMostEvents / std::max<size_t>(1, timelines));
  page.pictures = std::max<size_t>(6, kMostPictures / std::max<size_t>(2, set.runs.size()));
  add_header(set, facts, page);
  add_overview(set, facts, page);
  for (size_t i = 0; i < set.runs.size(); ++i) {
    page.body += fmt::format("<section id=\"run-{}\">\n", i);
    if (set.runs.size() > 1) {
      page.body += fmt::format("<h2>{}</h2>\n", escaped(set.runs[i].name));
      if (!is_published(set.runs[i])) {
        page.body += fmt::format("<p class=\"lead\">{}</p>\n", escaped(sentence_of(facts[i])));
      }
    }
    if (const RunFile* published = set.runs[i].find(Kind::published)) {
      add_published_section(*published, page);
    } else {
      add_run_section(set.runs[i], facts[i], page);
    }
    page.body += "</section>\n";
  }
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n"
      "<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n{}"
      "</main>\n<footer>Made by Millrace {}.</footer>\n"
      "<noscript><p class=\"note\">Curves and timelines need JavaScript.</p></noscript>\n"
      "<script type=\"application/json\" id=\"data\">{}</script>\n"
      "<script>\n{}{}{}{}</script>\n</body>\n</html>\n",
      escaped(title_of(set)), page_file("page.css"), page.body, source_links(set, page),
      script_text(page.data), page_file("charts.js"), page_file("tables.js"),
      page_file("timeline.js"), page_file("page.js"));
}

}  // namespace millrace::report
