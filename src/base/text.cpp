#include "base/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace millrace {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array<Unit, 12> kUnits = {{{"", 1},
                                          {"B", 1},
                                          {"K", 1024},
                                          {"M", 1024.0 * 1024},
                                          {"G", 1024.0 * 1024 * 1024},
                                          {"KiB", 1024},
                                          {"MiB", 1024.0 * 1024},
                                          {"GiB", 1024.0 * 1024 * 1024},
                                          {"TiB", 1024.0 * 1024 * 1024 * 1024},
                                          {"KB", 1e3},
                                          {"MB", 1e6},
                                          {"GB", 1e9}}};

char lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

int edit_distance(std::string_view first, std::string_view second) {
  std::vector<int> row(second.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= first.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= second.size(); ++j) {
      const bool same = lower(first[i - 1]) == lower(second[j - 1]);
      const int substitution = diagonal + (same ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitution});
    }
  }
  return row.back();
}

// The bytes of the character in front, or 0 if it is none: cut off, longer than it need be, or
// outside of what UTF-8 may hold.
size_t utf8_length(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || bytes.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned char second = byte(1);
  const bool too_long = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool outside = (first == 0xED && second > 0x9F) || (first == 0xF4 && second > 0x8F);
  return too_long || outside ? 0 : length;
}

}  // namespace

uint64_t parse_bytes(std::string_view text, std::string_view what) {
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status == std::errc() && std::isfinite(number) && number >= 0) {
    const std::string_view suffix(end, static_cast<size_t>(text.data() + text.size() - end));
    for (const Unit& unit : kUnits) {
      if (unit.name == suffix && number * unit.factor < 0x1.0p63) {
        return static_cast<uint64_t>(number * unit.factor);
      }
    }
  }
  fail_input(
      "{} is '{}', which is not a size; write bytes or a number with a unit, such as 12066MiB or "
      "16GiB.",
      what, text);
}

std::string format_bytes(uint64_t bytes) {
  constexpr std::array<const char*, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kNames[unit]);
}

std::string format_duration(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  const int64_t hours = total / 3600;
  const int64_t minutes = total / 60 % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60);
  return fmt::format("{}:{:02}", minutes, total % 60);
}

std::string printable(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const auto first = static_cast<unsigned char>(bytes.front());
    const bool is_control = first < ' ' || first == 0x7F;
    if (const size_t length = utf8_length(bytes); length > 0 && !is_control) {
      text += bytes.substr(0, length);
      bytes.remove_prefix(length);
    } else {
      text += fmt::format("\\x{:02x}", first);
      bytes.remove_prefix(1);
    }
  }
  return text;
}

std::string on_one_line(std::string_view text) {
  std::string line;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (letter == '\n') {
      line += "\\n";
    } else if (letter == '\t') {
      line += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      line += fmt::format("\\x{:02x}", byte);
    } else {
      line += letter;
    }
  }
  return line;
}

std::string join_choices(const std::vector<std::string>& choices) {
  std::string text;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) text += i + 1 == choices.size() ? " or " : ", ";
    text += choices[i];
  }
  return text;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t start = 0;
  while (true) {
    const size_t end = text.find(separator, start);
    parts.emplace_back(text.substr(start, end == std::string_view::npos ? end : end - start));
    if (end == std::string_view::npos) return parts;
    start = end + 1;
  }
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  int best_distance = std::max<int>(2, static_cast<int>(word.size()) / 3) + 1;
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace millrace
