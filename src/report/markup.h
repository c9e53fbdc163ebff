// Tables as Markdown and HTML, and text that is safe inside of either.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace {

// Plain data; cells are plain text. Columns whose cells are numbers or "–" align to the right.
struct Table {
  std::string caption;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  int bar_column = -1;             // of HTML: cells with a bar behind them
  std::vector<double> bar_shares;  // from 0 to 1, one a row
};

// For HTML and SVG, between tags and in quoted attributes.
std::string escaped(std::string_view text);

// For a cell of a Markdown table: no line breaks, no bars.
std::string markdown_cell(std::string_view text);

std::string to_markdown(const Table& table);
std::string to_html(const Table& table);

}  // namespace millrace
