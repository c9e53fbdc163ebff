// Small text helpers: sizes and durations for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

// "12066MiB", "16GiB", "1.5GB", "4096" → bytes. Throws InputError naming `what`.
uint64_t parse_bytes(std::string_view text, std::string_view what);

// 12652118016 → "11.78 GiB".
std::string format_bytes(uint64_t bytes);

// 3723.4 → "1:02:03"; 95 → "1:35".
std::string format_duration(double seconds);

// UTF-8 for people and for JSON: bytes that are none become \xNN, so that names which differ still
// do. Names of files may hold any bytes.
std::string printable(std::string_view bytes);

// The same bytes on one line: what moves the cursor becomes \n, \t or \xNN.
std::string on_one_line(std::string_view text);

std::vector<std::string> split(std::string_view text, char separator);

// "a", "a or b", "a, b or c".
std::string join_choices(const std::vector<std::string>& choices);

// The candidate nearest to `word` by edit distance whatever the case, or empty if none is close;
// for "did you mean" in error messages.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace millrace
