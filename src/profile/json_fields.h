// The fields of plain data as JSON, each named once for writing and for reading.
//
// A type that is kept has a function `visit_fields(value, visit)` that calls `visit("name",
// member)` for each of its members.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <concepts>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace millrace::profile {

template <typename Value>
Json written(Value& value);

// Collects the fields that it visits.
struct FieldWriter {
  Json json = Json::object();

  template <typename Value>
  void operator()(const char* name, Value& value) {
    json[name] = written(value);
  }
};

template <typename Value>
Json written(Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    return static_cast<int>(value);
  } else if constexpr (requires(FieldWriter & writer) { visit_fields(value, writer); }) {
    FieldWriter writer;
    visit_fields(value, writer);
    return std::move(writer.json);
  } else if constexpr (requires { value.begin()->second; } || std::same_as<Value, std::string>) {
    return value;
  } else if constexpr (requires { value.begin(); }) {
    Json list = Json::array();
    for (auto& one : value) list.push_back(written(one));
    return list;
  } else {
    return value;
  }
}

// Fills the fields that it visits from an object that others wrote. Throws InputError naming the
// file and the field at fault; numbers go from 0 to 1e18, whole ones to 1e9.
class FieldReader {
 public:
  FieldReader(const Json& json, std::string_view file) : json_(json), file_(file) {
    if (json.is_discarded()) fail("it is not JSON");
    if (!json.is_object()) fail("it or one of its parts is not an object");
  }

  template <typename Value>
  void operator()(const char* name, Value& value) const {
    const auto found = json_.find(name);
    if (found == json_.end()) fail(fmt::format("'{}' is missing", name));
    read(*found, name, value);
  }

  [[noreturn]] void fail(const std::string& what) const {
    fail_input("'{}' is not a profile that can be read: {}.", file_, what);
  }

 private:
  double number(const Json& json, const char* name) const {
    const double value = json.is_number() ? json.get<double>() : -1;
    if (!(value >= 0 && value <= 1e18))
      fail(fmt::format("'{}' is not a number from 0 to 1e18", name));
    return value;
  }

  template <typename Value>
  void read(const Json& json, const char* name, Value& value) const {
    if constexpr (std::is_floating_point_v<Value>) {
      value = number(json, name);
    } else if constexpr (std::is_integral_v<Value> || std::is_enum_v<Value>) {
      const double whole = json.is_number() && json.get<double>() == -1 ? -1 : number(json, name);
      if (whole != std::floor(whole) || whole > 1e9) {
        fail(fmt::format("'{}' is not a whole number up to 1e9", name));
      }
      value = static_cast<Value>(static_cast<int64_t>(whole));
    } else if constexpr (std::same_as<Value, std::string>) {
      if (!json.is_string()) fail(fmt::format("'{}' is not text", name));
      value = json.get<std::string>();
    } else if constexpr (requires(FieldReader & reader) { visit_fields(value, reader); }) {
      FieldReader reader(json, file_);
      visit_fields(value, reader);
    } else if constexpr (requires { value.begin()->second; }) {
      if (!json.is_object()) fail(fmt::format("'{}' is not an object", name));
      for (const auto& [key, one] : json.items()) read(one, name, value[key]);
    } else {
      if (!json.is_array()) fail(fmt::format("'{}' is not a list", name));
      if constexpr (requires { value.resize(json.size()); }) value.resize(json.size());
      auto place = value.begin();
      for (const Json& one : json) {
        if (place == value.end()) fail(fmt::format("'{}' is too long", name));
        read(one, name, *place++);
      }
    }
  }

  const Json& json_;
  const std::string_view file_;
};

}  // namespace millrace::profile
