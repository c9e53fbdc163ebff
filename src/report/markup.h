// Tables as Markdown and HTML, and text that is safe inside of either.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::report {

// A file that figures came from, and where a page finds it.
struct Source {
  std::string name;
  std::string address;  // relative to the page, as in a link
};

// Plain data; cells are plain text. Columns whose cells are numbers or "–" align to the right.
struct Table {
  std::string caption;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  int bar_column = -1;             // of HTML: cells with a bar behind them
  std::vector<double> bar_shares;  // from 0 to 1, one a row
  std::vector<Source> sources;     // of HTML: linked in the caption
};

// "from a.json, b.json" as links; empty without sources.
std::string links_to(const std::vector<Source>& sources);

// The file as a link of a page in `directory`.
Source source_of(const std::filesystem::path& file, const std::filesystem::path& directory);

// For HTML and SVG, between tags and in quoted attributes.
std::string escaped(std::string_view text);

// For a cell of a Markdown table: no line breaks, no bars.
std::string markdown_cell(std::string_view text);

std::string to_markdown(const Table& table);
std::string to_html(const Table& table);

}  // namespace millrace::report
