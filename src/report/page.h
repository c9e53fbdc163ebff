// A report as one page of HTML that needs no other file and no network.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "report/run_facts.h"

namespace millrace::report {

// Tables are plain HTML; curves, bars and timelines are drawn by the page's script from data that
// the page carries, which is thinned out where there is much. The names and texts of runs are never
// markup. `facts` are those of the set's runs; links to their files are relative to `directory`.
std::string report_page(const RunSet& set, const std::vector<RunFacts>& facts,
                        const std::filesystem::path& directory);

}  // namespace millrace::report
