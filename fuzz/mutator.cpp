#include "mutator.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "base/json_text.h"

namespace millrace {
namespace {

using Chance = std::minstd_rand;

size_t below(Chance& chance, size_t bound) { return bound == 0 ? 0 : chance() % bound; }

size_t keep(std::string_view bytes, uint8_t* data, size_t most) {
  const size_t size = std::min(bytes.size(), most);
  std::memcpy(data, bytes.data(), size);
  return size;
}

void change(std::string& bytes, size_t most) {
  const size_t size = bytes.size();
  bytes.resize(std::max<size_t>(size + 64, 1));
  const size_t limit = std::min(bytes.size(), std::max<size_t>(most, 1));
  bytes.resize(
      LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(bytes.data()), std::min(size, limit), limit));
}

Json extreme_value(Chance& chance) {
  static const std::vector<Json> kValues = {nullptr,
                                            true,
                                            0,
                                            -1,
                                            1,
                                            INT64_MAX,
                                            INT64_MIN,
                                            UINT64_MAX,
                                            1e308,
                                            -1e-308,
                                            0.5,
                                            "",
                                            "../x",
                                            "0:0-65535",
                                            "\xff\x00z",
                                            Json::array(),
                                            Json::object(),
                                            Json::array({Json::array({1, 2}), "a"})};
  return kValues[below(chance, kValues.size())];
}

// Every value of the document, the outermost first.
void list_values(Json& json, std::vector<Json*>& values) {
  values.push_back(&json);
  if (!json.is_structured()) return;
  for (Json& inner : json) list_values(inner, values);
}

void change_container(Json& json, Chance& chance) {
  const size_t at = below(chance, json.size());
  const size_t way = below(chance, 3);
  if (json.is_array()) {
    if (way == 0) json.erase(at);
    if (way == 1) json.push_back(Json(json[at]));
    if (way == 2) std::swap(json[at], json[below(chance, json.size())]);
    return;
  }
  const auto field = std::next(json.begin(), static_cast<std::ptrdiff_t>(at));
  const std::string name = field.key();
  const Json value = field.value();
  if (way != 1) json.erase(name);
  if (way != 0) json[name + "x"] = value;
}

void change_json(Json& json, Chance& chance) {
  std::vector<Json*> values;
  list_values(json, values);
  Json& chosen = *values[below(chance, values.size())];
  const size_t way = below(chance, 4);
  if (chosen.is_structured() && !chosen.empty() && way != 0) {
    change_container(chosen, chance);
  } else if (chosen.is_string() && way != 0) {
    std::string text = chosen.get<std::string>();
    change(text, 256);
    chosen = text;
  } else if (chosen.is_number() && way == 1) {
    chosen = chosen.get<double>() * -1.5;
  } else {
    chosen = extreme_value(chance);
  }
}

}  // namespace

size_t mutate_parts(const PartsFormat& format, uint8_t* data, size_t size, size_t most,
                    unsigned seed) {
  Chance chance(seed + 1);
  if (below(chance, 4) == 0) return LLVMFuzzerMutate(data, size, most);
  Parts parts = format.split({reinterpret_cast<const char*>(data), size});
  if (parts.empty()) return LLVMFuzzerMutate(data, size, most);
  const size_t at = below(chance, parts.size());
  switch (below(chance, 6)) {
    case 0:
      parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(below(chance, parts.size())),
                   std::string(parts[at]));
      break;
    case 1:
      if (parts.size() > 1) parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 2:
      std::swap(parts[at], parts[below(chance, parts.size())]);
      break;
    default:
      change(parts[at], most);
  }
  return keep(format.join(parts), data, most);
}

size_t mutate_json(uint8_t* data, size_t size, size_t most, unsigned seed) {
  Chance chance(seed + 1);
  if (below(chance, 4) == 0) return LLVMFuzzerMutate(data, size, most);
  Parts lines = lines_of_text().split({reinterpret_cast<const char*>(data), size});
  std::string whole(reinterpret_cast<const char*>(data), size);
  const bool one = lines.size() < 2 || parse_json(lines[0]).is_discarded();
  std::string& text = one ? whole : lines[below(chance, lines.size())];
  Json json = parse_json(text);
  if (json.is_discarded()) return LLVMFuzzerMutate(data, size, most);
  change_json(json, chance);
  text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return keep(one ? text : lines_of_text().join(lines), data, most);
}

PartsFormat length_prefixed(size_t length_bytes) {
  return {[=](std::string_view bytes) {
            Parts parts;
            while (bytes.size() >= length_bytes) {
              uint64_t length = 0;
              std::memcpy(&length, bytes.data(), length_bytes);
              bytes.remove_prefix(length_bytes);
              parts.emplace_back(bytes.substr(0, length));
              bytes.remove_prefix(parts.back().size());
            }
            return parts;
          },
          [=](const Parts& parts) {
            std::string bytes;
            for (const std::string& part : parts) {
              const uint64_t length = part.size();
              bytes.append(reinterpret_cast<const char*>(&length), length_bytes);
              bytes += part;
            }
            return bytes;
          }};
}

PartsFormat lines_of_text() {
  return {[](std::string_view bytes) {
            Parts parts;
            for (size_t begin = 0; begin < bytes.size();) {
              const size_t end = std::min(bytes.find('\n', begin), bytes.size());
              parts.emplace_back(bytes.substr(begin, end - begin));
              begin = end + 1;
            }
            return parts;
          },
          [](const Parts& parts) {
            std::string bytes;
            for (const std::string& part : parts) bytes += part + "\n";
            return bytes;
          }};
}

}  // namespace millrace
