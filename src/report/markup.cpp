#include "report/markup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

namespace millrace::report {
namespace {

// A number, alone or with what may follow one, or nothing.
bool is_number(std::string_view text) {
  if (text.empty() || text == "–") return true;
  if (text.front() == '+') text.remove_prefix(1);
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc()) return false;
  const std::string_view rest = text.substr(static_cast<size_t>(end - text.data()));
  if (rest.empty()) return true;
  constexpr std::string_view kRests[] = {" %", " B",         " KiB",    " MiB", " GiB", " TiB",
                                         " /", " predicted", " points", " s",   " ms"};
  return std::any_of(std::begin(kRests), std::end(kRests),
                     [&](std::string_view known) { return rest.starts_with(known); });
}

bool is_numeric(const Table& table, size_t column) {
  return column > 0 && std::all_of(table.rows.begin(), table.rows.end(), [&](const auto& row) {
           return column >= row.size() || is_number(row[column]);
         });
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return safe;
}

std::string markdown_cell(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '|') safe += '\\';
    safe += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return safe;
}

std::string to_markdown(const Table& table) {
  const auto line = [](const std::vector<std::string>& cells) {
    std::string text = "|";
    for (const std::string& cell : cells) text += fmt::format(" {} |", markdown_cell(cell));
    return text + "\n";
  };
  std::string text = line(table.head) + "|";
  for (size_t i = 0; i < table.head.size(); ++i) text += is_numeric(table, i) ? "---:|" : "---|";
  text += "\n";
  for (const std::vector<std::string>& row : table.rows) text += line(row);
  return text;
}

std::string links_to(const std::vector<Source>& sources) {
  std::string text;
  for (const Source& source : sources) {
    text += fmt::format("{}<a href=\"{}\">{}</a>", text.empty() ? "from " : ", ",
                        escaped(source.address), escaped(source.name));
  }
  return text.empty() ? text : "<span class=\"source\">" + text + "</span>";
}

Source source_of(const std::filesystem::path& file, const std::filesystem::path& directory) {
  std::error_code error;
  const std::filesystem::path near =
      std::filesystem::relative(file, directory.empty() ? "." : directory, error);
  const std::string path = (error || near.empty() ? file.filename() : near).generic_string();
  std::string address;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain =
        std::isalnum(byte) != 0 || std::string_view("/._-~").find(c) != std::string_view::npos;
    address += plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return {file.filename().string(), address};
}

std::string to_html(const Table& table) {
  std::string text = fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table>"
      "<caption>{0}{1}</caption><thead><tr>",
      escaped(table.caption), links_to(table.sources));
  std::vector<std::string> kinds;
  for (size_t i = 0; i < table.head.size(); ++i) {
    kinds.push_back(is_numeric(table, i) ? "n" : "");
    text += fmt::format("<th scope=\"col\" class=\"{}\">{}</th>", kinds[i], escaped(table.head[i]));
  }
  text += "</tr></thead>\n<tbody>\n";
  for (size_t index = 0; index < table.rows.size(); ++index) {
    const std::vector<std::string>& row = table.rows[index];
    text += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string kind = i < kinds.size() ? kinds[i] : "";
      if (static_cast<int>(i) == table.bar_column && index < table.bar_shares.size()) {
        text += fmt::format("<td class=\"{} bar\" style=\"--share:{:.1f}%\">{}</td>", kind,
                            100 * std::clamp(table.bar_shares[index], 0.0, 1.0), escaped(row[i]));
      } else if (i == 0) {
        text += fmt::format("<th scope=\"row\">{}</th>", escaped(row[i]));
      } else {
        text += fmt::format("<td class=\"{}\">{}</td>", kind, escaped(row[i]));
      }
    }
    text += "</tr>\n";
  }
  return text + "</tbody></table></div>\n";
}

}  // namespace millrace::report
