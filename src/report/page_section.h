// Parts of the page: the section of a run, and of published measurements.
#pragma once

#include "report/markup.h"
#include "report/report.h"
#include "report/run_facts.h"

namespace millrace::report {

// What the page consists of while it is made. Figures stand in `body` as places that name their
// data, which the page's script draws.
struct PageParts {
  std::string body;
  Json data;
  std::filesystem::path directory;  // that the page is written to
  size_t events_of_timeline = 0;    // at most, so that the page stays small
  size_t pictures = 0;              // of a run, likewise

  Source source(const RunFile& file) const { return source_of(file.path, directory); }
};

// A place for a figure, under a title.
std::string card(const std::string& title, const std::string& figure, const std::string& caption,
                 const std::vector<Source>& sources);

// Loss and accuracy by step of several runs in one figure each, if two or more have any.
void add_comparison(const std::vector<RunFacts>& facts, PageParts& page);

void add_run_section(const Run& run, const RunFacts& facts, PageParts& page);
void add_published_section(const RunFile& file, PageParts& page);

}  // namespace millrace::report
