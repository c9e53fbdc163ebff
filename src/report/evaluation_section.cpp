#include "report/evaluation_section.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace::report {
namespace {

constexpr size_t kMostCells = 24;  // classes of a matrix that is drawn
constexpr size_t kMostPairs = 15;
constexpr size_t kMostPictureBytes = 200'000;

// The confusion of a file as numbers: a row and a name for each class.
struct Counts {
  std::vector<std::string> names;
  std::vector<std::vector<double>> rows;

  explicit Counts(const Json& root) {
    const Json confusion = json_member(root, "confusion");
    for (const Json& each : json_member(confusion, "classes")) {
      names.push_back(json_text(each, "name"));
    }
    for (const Json& row : json_member(confusion, "matrix")) {
      rows.emplace_back(names.size(), 0);
      size_t column = 0;
      for (const Json& count : row) {
        if (column < names.size() && count.is_number()) {
          rows.back()[column] = std::max(0.0, count.get<double>());
        }
        ++column;
      }
    }
    rows.resize(names.size(), std::vector<double>(names.size(), 0));
  }

  double samples(size_t label) const {
    double sum = 0;
    for (const double count : rows[label]) sum += count;
    return sum;
  }
};

std::string share_text(const std::optional<double>& share) {
  return share ? fmt::format("{:.1f} %", 100 * *share) : "–";
}

std::string matrix_html(const Counts& counts, const std::vector<Source>& sources) {
  std::string text = fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Confusion\">"
      "<table class=\"matrix\"><caption>Confusion{}</caption><thead><tr><td></td>",
      links_to(sources));
  for (const std::string& name : counts.names) {
    text += fmt::format("<th scope=\"col\" title=\"{0}\"><span>{0}</span></th>", escaped(name));
  }
  text += "</tr></thead>\n<tbody>\n";
  for (size_t label = 0; label < counts.rows.size(); ++label) {
    const double samples = counts.samples(label);
    text +=
        fmt::format("<tr><th scope=\"row\" title=\"{0}\">{0}</th>", escaped(counts.names[label]));
    for (size_t told = 0; told < counts.rows.size(); ++told) {
      const double count = counts.rows[label][told];
      const double share = samples > 0 ? count / samples : 0;
      text += fmt::format(
          "<td class=\"{}\" style=\"--share:{:.0f}%\" title=\"{} of {:g} {} taken for {}\">{}</td>",
          label == told ? "own" : "other", 65 * share, count, samples, escaped(counts.names[label]),
          escaped(counts.names[told]), count > 0 ? fmt::format("{:g}", count) : "");
    }
    text += "</tr>\n";
  }
  return text +
         "</tbody></table><p class=\"small\">Rows are the classes of the samples, columns what "
         "they "
         "were taken for.</p></div>\n";
}

// A PNG in letters and nothing else, so that it cannot be anything but a picture.
bool is_picture(const std::string& text) {
  constexpr std::string_view kStart = "data:image/png;base64,";
  if (!text.starts_with(kStart) || text.size() > kMostPictureBytes) return false;
  return std::all_of(text.begin() + kStart.size(), text.end(), [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '+' || letter == '/' || letter == '=';
  });
}

std::string gallery(const Json& root, size_t most) {
  std::string text;
  size_t count = 0;
  for (const Json& sample : json_member(root, "wrong")) {
    const std::string picture = json_text(sample, "picture");
    if (!is_picture(picture) || count == most) continue;
    const std::string name = escaped(json_text(sample, "name"));
    const std::string told = escaped(json_text(sample, "taken_for"));
    const std::string file = escaped(json_text(sample, "file"));
    text += fmt::format(
        "<figure title=\"{}\"><img src=\"{}\" alt=\"{} taken for {}\">"
        "<figcaption><b>{}</b> taken for <b>{}</b>, <span "
        "class=\"n\">{}</span>{}</figcaption></figure>\n",
        file, picture, name, told, name, told, share_text(json_number(sample, "share")),
        file.empty() ? "" : fmt::format("<br><span class=\"file\">{}</span>", file));
    ++count;
  }
  return text;
}

}  // namespace

bool is_evaluation(const Json& root) {
  return json_member(json_member(root, "confusion"), "matrix").is_array();
}

Table class_table(const Json& root) {
  Table table;
  table.caption = "Classes";
  table.head = {"class", "samples", "precision", "recall"};
  table.bar_column = 3;
  for (const Json& each : json_member(json_member(root, "confusion"), "classes")) {
    const std::optional<double> samples = json_number(each, "samples");
    const std::optional<double> recall = json_number(each, "recall");
    table.rows.push_back({json_text(each, "name"), samples ? fmt::format("{:g}", *samples) : "–",
                          share_text(json_number(each, "precision")), share_text(recall)});
    table.bar_shares.push_back(recall.value_or(0));
  }
  return table;
}

Table confusion_pairs(const Json& root) {
  struct Pair {
    size_t label, told;
    double count;
  };
  const Counts counts(root);
  std::vector<Pair> pairs;
  for (size_t label = 0; label < counts.rows.size(); ++label) {
    for (size_t told = 0; told < counts.rows.size(); ++told) {
      const double count = counts.rows[label][told];
      if (label != told && count > 0) pairs.push_back({label, told, count});
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const Pair& a, const Pair& b) { return a.count > b.count; });
  if (pairs.size() > kMostPairs) pairs.resize(kMostPairs);
  Table table;
  table.caption = "Most often mixed up";
  table.head = {"class", "taken for", "samples", "of the class"};
  for (const Pair& pair : pairs) {
    table.rows.push_back({counts.names[pair.label], counts.names[pair.told],
                          fmt::format("{:g}", pair.count),
                          share_text(pair.count / counts.samples(pair.label))});
  }
  return table;
}

void add_evaluation_section(const RunFile& file, size_t most_pictures, PageParts& page) {
  const std::vector<Source> sources = {page.source(file)};
  const Counts counts(file.json);
  if (!counts.names.empty() && counts.names.size() <= kMostCells) {
    page.body += matrix_html(counts, sources);
  }
  for (Table table : {class_table(file.json), confusion_pairs(file.json)}) {
    if (table.rows.empty()) continue;
    table.sources = sources;
    page.body += to_html(table);
  }
  const std::string pictures = gallery(file.json, most_pictures);
  if (pictures.empty()) return;
  page.body += fmt::format(
      "<div class=\"card\"><h3>Wrong predictions</h3><div class=\"gallery\">\n{}</div>"
      "<p class=\"small\">Those that the network was the furthest off with, as it saw them, {}.</p>"
      "</div>\n",
      pictures, links_to(sources));
}

}  // namespace millrace::report
