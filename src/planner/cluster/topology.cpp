#include "planner/cluster/topology.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"

namespace millrace::planner {
namespace {

constexpr size_t kMostDevices = 1024;
constexpr size_t kMostColumns = 2 * kMostDevices;
constexpr std::array<std::string_view, 6> kClasses = {"X", "PIX", "PXB", "PHB", "NODE", "SYS"};

struct Line {
  size_t number;
  std::vector<std::string> words;
};

// What an error message may show of the file.
std::string shown(std::string_view word) {
  std::string text(word.substr(0, 24));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  size_t at = 0;
  while (at < line.size() && words.size() <= kMostColumns) {
    while (at < line.size() && is_space(line[at])) ++at;
    const size_t begin = at;
    while (at < line.size() && !is_space(line[at])) ++at;
    if (at > begin) words.emplace_back(line.substr(begin, at - begin));
  }
  return words;
}

// Drops the colours with which newer versions underline the header.
std::string without_colours(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b') {
      plain.push_back(text[i]);
      continue;
    }
    while (i < text.size() && !std::isalpha(static_cast<unsigned char>(text[i]))) ++i;
  }
  return plain;
}

std::vector<Line> lines_of(std::string_view text) {
  std::vector<Line> lines;
  size_t begin = 0;
  for (size_t number = 1; begin <= text.size(); ++number) {
    size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) end = text.size();
    std::vector<std::string> words = words_of(text.substr(begin, end - begin));
    if (!words.empty()) {
      if (words.front().starts_with("Legend")) break;
      lines.push_back({number, std::move(words)});
    }
    begin = end + 1;
  }
  return lines;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= 4 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_device(std::string_view word) {
  return word.starts_with("GPU") && is_number(word.substr(3));
}

bool is_link(std::string_view word) {
  return simulate::bonded_links(word) > 0 ||
         std::find(kClasses.begin(), kClasses.end(), word) != kClasses.end();
}

struct Header {
  std::vector<std::string> columns;  // devices first
  size_t devices = 0;
};

Header parse_header(const Line& line, std::string_view file) {
  Header header;
  for (size_t i = 0; i < line.words.size(); ++i) {
    const std::string& word = line.words[i];
    if (word == "CPU" || word == "NUMA" || word == "GPU") break;
    if (is_device(word)) {
      if (header.devices != header.columns.size()) {
        fail_input("'{}' line {}: device {} stands behind a network card; devices come first.",
                   file, line.number, shown(word));
      }
      ++header.devices;
    }
    if (std::find(header.columns.begin(), header.columns.end(), word) != header.columns.end()) {
      fail_input("'{}' line {}: column {} occurs twice.", file, line.number, shown(word));
    }
    header.columns.push_back(word);
  }
  if (header.devices == 0) {
    fail_input(
        "'{}' line {}: there is no column GPU0; give the output of 'nvidia-smi topo -m' from its "
        "first line on.",
        file, line.number);
  }
  if (header.devices > kMostDevices) {
    fail_input("'{}' line {}: there are {} devices; at most {} are read.", file, line.number,
               header.devices, kMostDevices);
  }
  return header;
}

void parse_row(const Line& line, const Header& header, std::string_view file, Topology& topology) {
  const size_t row = topology.links.size();
  const std::string& name = line.words.front();
  if (name != header.columns[row]) {
    fail_input("'{}' line {}: this is the row of {}, but {} is next.", file, line.number,
               shown(name), shown(header.columns[row]));
  }
  if (line.words.size() <= header.columns.size()) {
    fail_input("'{}' line {}: {} has {} links and needs {}.", file, line.number, shown(name),
               line.words.size() - 1, header.columns.size());
  }
  std::vector<std::string> links(line.words.begin() + 1,
                                 line.words.begin() + 1 + static_cast<long>(header.columns.size()));
  for (size_t column = 0; column < links.size(); ++column) {
    if (!is_link(links[column]) || (links[column] == "X") != (column == row)) {
      fail_input(
          "'{}' line {}: {} to {} is '{}'; a link is PIX, PXB, PHB, NODE, SYS or NV and a number, "
          "and X a device to itself.",
          file, line.number, shown(name), shown(header.columns[column]), shown(links[column]));
    }
  }
  links.resize(header.devices);
  topology.links.push_back(std::move(links));
}

}  // namespace

Topology parse_topology(std::string_view text, std::string_view file) {
  const std::string plain = without_colours(text);
  const std::vector<Line> lines = lines_of(plain);
  if (lines.empty()) {
    fail_input("'{}' is empty; it should hold the output of 'nvidia-smi topo -m'.", file);
  }
  const Header header = parse_header(lines.front(), file);
  Topology topology;
  topology.devices.assign(header.columns.begin(),
                          header.columns.begin() + static_cast<long>(header.devices));
  for (size_t i = 1; i < lines.size() && topology.links.size() < header.devices; ++i) {
    parse_row(lines[i], header, file, topology);
  }
  if (topology.links.size() < header.devices) {
    fail_input("'{}' ends after {} of {} devices; the row of {} is missing.", file,
               topology.links.size(), header.devices, shown(header.columns[topology.links.size()]));
  }
  for (size_t i = 0; i < header.devices; ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (topology.links[i][j] != topology.links[j][i]) {
        fail_input("'{}': {} to {} is {} but back it is {}.", file, topology.devices[j],
                   topology.devices[i], topology.links[j][i], topology.links[i][j]);
      }
    }
  }
  return topology;
}

}  // namespace millrace::planner
