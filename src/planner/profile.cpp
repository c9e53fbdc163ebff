#include "planner/profile.h"

#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace millrace::planner {
namespace {

constexpr std::string_view kSeparator = " -- ";
constexpr std::string_view kStage = "stage_id=";
constexpr double kLargestQuantity = 1e18;

struct Quantity {
  std::string_view name;
  double ProfileNode::*member;
};

constexpr std::array<Quantity, 4> kQuantities = {{
    {"forward_compute_time", &ProfileNode::forward_milliseconds},
    {"backward_compute_time", &ProfileNode::backward_milliseconds},
    {"activation_size", &ProfileNode::activation_bytes},
    {"parameter_size", &ProfileNode::parameter_bytes},
}};

// Text from a file, made fit for a one-line message.
std::string shortened(std::string_view text) {
  constexpr size_t kLongest = 60;
  std::string result;
  for (const char letter : text.substr(0, kLongest)) {
    const bool plain = letter >= ' ' && letter <= '~';
    result += plain ? letter : '?';
  }
  return text.size() > kLongest ? result + "..." : result;
}

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  Profile parse() {
    for (size_t start = 0; start < text_.size();) {
      const size_t end = std::min(text_.find('\n', start), text_.size());
      ++line_;
      read_line(text_.substr(start, end - start));
      start = end + 1;
    }
    if (profile_.nodes.empty()) {
      fail_input("'{}' has no operators; it should be a profile in PipeDream's text format.",
                 file_);
    }
    resolve_edges();
    require_no_cycle();
    return std::move(profile_);
  }

 private:
  struct EdgeLine {
    std::string_view from, to;
    int line;
  };

  template <typename... Arguments>
  [[noreturn]] void fail(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    fail_input("'{}' line {}: {}", file_, line_,
               fmt::format(format, std::forward<Arguments>(arguments)...));
  }

  void read_line(std::string_view line) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) return;
    if (line.front() == '\t') {
      read_edge(line.substr(1));
    } else {
      read_node(line);
    }
  }

  void read_edge(std::string_view line) {
    const size_t separator = line.find(kSeparator);
    if (separator == std::string_view::npos || separator == 0 ||
        separator + kSeparator.size() == line.size()) {
      fail("an edge is written '<tab>FROM -- TO', not '{}'.", shortened(line));
    }
    edges_.push_back(
        {line.substr(0, separator), line.substr(separator + kSeparator.size()), line_});
  }

  // Takes the last field off `line`; a description may hold the separator, other fields not.
  std::string_view take_last(std::string_view& line) const {
    const size_t separator = line.rfind(kSeparator);
    if (separator == std::string_view::npos) {
      fail(
          "an operator is written 'ID -- DESCRIPTION -- forward_compute_time=..., "
          "backward_compute_time=..., activation_size=..., parameter_size=...', not '{}'.",
          shortened(line));
    }
    const std::string_view field = line.substr(separator + kSeparator.size());
    line = line.substr(0, separator);
    return field;
  }

  void read_node(std::string_view line) {
    ProfileNode node;
    std::string_view rest = line;
    std::string_view quantities = take_last(rest);
    if (quantities.starts_with(kStage)) {
      node.stage = parse_number<int>(quantities.substr(kStage.size()));
      if (!node.stage) fail("'{}' is not a whole number.", shortened(quantities));
      quantities = take_last(rest);
    }
    read_quantities(quantities, node);
    const size_t separator = rest.find(kSeparator);
    if (separator == 0 || separator == std::string_view::npos) {
      fail("the operator's id or description is missing.");
    }
    node.id = rest.substr(0, separator);
    node.description = rest.substr(separator + kSeparator.size());
    const int index = static_cast<int>(profile_.nodes.size());
    if (!index_.emplace(node.id, index).second) {
      fail("the operator '{}' was described before.", shortened(node.id));
    }
    profile_.nodes.push_back(std::move(node));
  }

  void read_quantities(std::string_view text, ProfileNode& node) const {
    std::array<bool, kQuantities.size()> seen{};
    for (const std::string& part : split(text, ',')) {
      const std::string_view item = std::string_view(part).substr(part.starts_with(' ') ? 1 : 0);
      const size_t equals = item.find('=');
      size_t which = 0;
      while (which < seen.size() && kQuantities[which].name != item.substr(0, equals)) ++which;
      if (which == seen.size() || equals == std::string_view::npos) {
        fail("'{}' is none of the four quantities of an operator.", shortened(item));
      }
      if (seen[which]) fail("{} is given twice.", kQuantities[which].name);
      seen[which] = true;
      node.*kQuantities[which].member = read_value(item.substr(equals + 1), item);
    }
    for (size_t which = 0; which < seen.size(); ++which) {
      if (!seen[which]) fail("{} is missing.", kQuantities[which].name);
    }
  }

  double read_value(std::string_view text, std::string_view item) const {
    if (!text.starts_with('[')) return read_single(text, item);
    if (!text.ends_with(']')) fail("the list in '{}' does not end.", shortened(item));
    double sum = 0;
    for (const std::string& part : split(text.substr(1, text.size() - 2), ';')) {
      const std::string_view number = part;
      sum += read_single(number.substr(number.starts_with(' ') ? 1 : 0), item);
    }
    if (sum > kLargestQuantity) fail("the sum of '{}' is too large.", shortened(item));
    return sum;
  }

  double read_single(std::string_view text, std::string_view item) const {
    const std::optional<double> value = parse_number<double>(text);
    if (!value || !(*value >= 0 && *value <= kLargestQuantity)) {
      fail("'{}' does not have a number from 0 to 1e18.", shortened(item));
    }
    return std::abs(*value);
  }

  int find(std::string_view id) const {
    const auto found = index_.find(std::string(id));
    if (found == index_.end()) fail("the operator '{}' is not described.", shortened(id));
    return found->second;
  }

  void resolve_edges() {
    std::set<std::pair<int, int>> known;
    std::vector<EdgeLine> kept;
    for (const EdgeLine& edge : edges_) {
      line_ = edge.line;
      const std::pair<int, int> pair(find(edge.from), find(edge.to));
      if (!known.insert(pair).second) continue;
      profile_.edges.push_back(pair);
      kept.push_back(edge);
    }
    edges_ = std::move(kept);
  }

  // Takes away nodes without a waiting predecessor; what stays is on a cycle or behind one.
  void require_no_cycle() {
    std::vector<int> waiting(profile_.nodes.size());
    std::vector<std::vector<int>> outgoing(profile_.nodes.size());
    for (const auto& [from, to] : profile_.edges) {
      ++waiting[to];
      outgoing[from].push_back(to);
    }
    std::vector<int> ready;
    for (size_t node = 0; node < waiting.size(); ++node) {
      if (waiting[node] == 0) ready.push_back(static_cast<int>(node));
    }
    for (size_t done = 0; done < ready.size(); ++done) {
      const int node = ready[done];
      for (const int next : outgoing[node]) {
        if (--waiting[next] == 0) ready.push_back(next);
      }
    }
    if (ready.size() < waiting.size()) fail_cycle(waiting);
  }

  [[noreturn]] void fail_cycle(const std::vector<int>& waiting) {
    std::vector<int> edge_into(waiting.size(), -1);
    int node = -1;
    for (size_t edge = 0; edge < profile_.edges.size(); ++edge) {
      const auto& [from, to] = profile_.edges[edge];
      if (waiting[from] == 0) continue;
      edge_into[to] = static_cast<int>(edge);
      node = from;
    }
    std::vector<bool> visited(waiting.size());
    while (!visited[node]) {
      visited[node] = true;
      node = profile_.edges[edge_into[node]].first;
    }
    line_ = edges_[edge_into[node]].line;
    fail("the edge '{}' is part of a cycle; a profile's edges may not lead back.",
         shortened(
             fmt::format("{} -- {}", edges_[edge_into[node]].from, edges_[edge_into[node]].to)));
  }

  std::string_view text_;
  std::string_view file_;
  int line_ = 0;
  Profile profile_;
  std::vector<EdgeLine> edges_;
  std::unordered_map<std::string, int> index_;
};

std::string format_value(double value) {
  std::string text = fmt::format("{:.3f}", value);
  return parse_number<double>(text) == value ? text : fmt::format("{}", value);
}

void require_writable_node(const ProfileNode& node) {
  const bool id_fits = !node.id.empty() && node.id.find('\n') == std::string::npos &&
                       node.id.find(kSeparator) == std::string::npos && node.id.front() != '\t';
  if (!id_fits) {
    fail_input("The operator id '{}' cannot be written into a profile.", shortened(node.id));
  }
  if (node.description.find('\n') != std::string::npos) {
    fail_input("The description of '{}' has a line break, which a profile cannot hold.",
               shortened(node.id));
  }
}

}  // namespace

Profile parse_profile(std::string_view text, std::string_view file) {
  return Parser(text, file).parse();
}

Profile read_profile(const std::filesystem::path& path) {
  return parse_profile(read_text(path), path.string());
}

std::string format_profile(const Profile& profile) {
  std::string text;
  for (ProfileNode node : profile.nodes) {
    require_writable_node(node);
    node.backward_milliseconds += node.update_milliseconds;
    text += fmt::format("{}{}{}", node.id, kSeparator, node.description);
    std::string_view before = kSeparator;
    for (const Quantity& quantity : kQuantities) {
      text += fmt::format("{}{}={}", before, quantity.name, format_value(node.*quantity.member));
      before = ", ";
    }
    if (node.stage) text += fmt::format("{}{}{}", kSeparator, kStage, *node.stage);
    text += '\n';
  }
  for (const auto& [from, to] : profile.edges) {
    text += fmt::format("\t{}{}{}\n", profile.nodes[from].id, kSeparator, profile.nodes[to].id);
  }
  return text;
}

}  // namespace millrace::planner
