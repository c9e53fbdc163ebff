#include "planner/cost/constants.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json_text.h"
#include "base/text.h"
#include "planner/data/embedded.h"

namespace millrace::planner {
namespace {

constexpr double kLeastConstant = 0, kMostConstant = 1e18;

template <typename Visit>
void visit_operators(OperatorConstants& o, Visit&& visit) {
  visit("convolution", o.convolution);
  visit("convolution3", o.convolution3);
  visit("pointwise", o.pointwise);
  visit("linear", o.linear);
  visit("memory", o.memory);
  visit("half_convolution", o.half_convolution);
  visit("half_linear", o.half_linear);
  visit("half_operations", o.half_operations);
  visit("kernel_seconds", o.kernel_seconds);
  visit("beyond", o.beyond);
}

template <typename Visit>
void visit_software(SoftwareConstants& s, Visit&& visit) {
  visit("slowness", s.slowness);
  visit("collective_efficiency", s.collective_efficiency);
  visit("transfer_efficiency", s.transfer_efficiency);
  visit("overlap", s.overlap);
  visit("stale_overlap", s.stale_overlap);
  visit("update_passes", s.update_passes);
  visit("transpose_passes", s.transpose_passes);
  visit("boundary_rate", s.boundary_rate);
  visit("loader_rate", s.loader_rate);
  visit("straggling", s.straggling);
  visit("context_bytes", s.context_bytes);
  visit("reading_bytes", s.reading_bytes);
  visit("activation_factor", s.activation_factor);
  visit("parameter_copies", s.parameter_copies);
  visit("workspace_factor", s.workspace_factor);
  visit("algorithm_factor", s.algorithm_factor);
  visit("algorithm_limit", s.algorithm_limit);
  visit("head_logit_passes", s.head_logit_passes);
  visit("head_weight_passes", s.head_weight_passes);
  visit("head_sampling", s.head_sampling);
  visit("head_logit_copies", s.head_logit_copies);
  visit("head_weight_copies", s.head_weight_copies);
}

double number(const Json& object, const std::string& name, std::string_view file) {
  const double value =
      object.contains(name) && object[name].is_number() ? object[name].get<double>() : std::nan("");
  if (!(value >= kLeastConstant && value <= kMostConstant)) {
    fail_input("'{}': constant '{}' must be a number from 0 to 1e18.", file, name);
  }
  return value;
}

bool flag(const Json& object, const char* name) {
  return object.contains(name) && object[name].is_boolean() && object[name].get<bool>();
}

std::vector<FreeConstant> parse_free(const Json& list, std::string_view file) {
  std::vector<FreeConstant> free;
  if (!list.is_array()) fail_input("'{}': 'free' must be a list.", file);
  for (const Json& item : list) {
    const bool named = item.is_object() && item.contains("constants") &&
                       item["constants"].is_array() && !item["constants"].empty();
    if (!named) fail_input("'{}': each of 'free' must have a list of 'constants'.", file);
    FreeConstant constant;
    for (const Json& name : item["constants"]) {
      if (!name.is_string()) fail_input("'{}': names of free constants must be strings.", file);
      constant.names.push_back(name.get<std::string>());
    }
    constant.spread = number(item, "spread", file);
    if (constant.spread <= 0) {
      fail_input("'{}': the spread of '{}' must be above 0.", file, constant.names.front());
    }
    if (item.contains("source") && item["source"].is_string()) {
      constant.source = item["source"].get<std::string>();
    }
    free.push_back(std::move(constant));
  }
  return free;
}

// Every free name must be a constant.
void check_free(CostConstants& constants, std::string_view file) {
  const std::vector<ConstantField> fields = fields_of(constants);
  for (const FreeConstant& constant : constants.free) {
    for (const std::string& name : constant.names) {
      const bool known = std::any_of(fields.begin(), fields.end(), [&](const ConstantField& field) {
        return field.name == name;
      });
      if (!known) fail_input("'{}': '{}' in 'free' is no constant.", file, name);
    }
  }
}

}  // namespace

const SoftwareConstants& CostConstants::system(std::string_view name,
                                               std::string_view flag_name) const {
  std::vector<std::string> names;
  for (const SoftwareConstants& candidate : software) {
    if (candidate.name == name) return candidate;
    names.push_back(candidate.name);
  }
  const std::string close = nearest(name, names);
  fail_input("{} is '{}'; choose one of {}{}.", flag_name, name, fmt::join(names, ", "),
             close.empty() ? "" : fmt::format(" (did you mean '{}'?)", close));
}

std::vector<ConstantField> fields_of(CostConstants& constants) {
  std::vector<ConstantField> fields;
  visit_operators(constants.operators, [&](const char* name, double& value) {
    fields.push_back({fmt::format("operators.{}", name), &value});
  });
  for (SoftwareConstants& software : constants.software) {
    visit_software(software, [&](const char* name, double& value) {
      fields.push_back({fmt::format("{}.{}", software.name, name), &value});
    });
  }
  return fields;
}

CostConstants builtin_constants() {
  return parse_constants(embedded_file("costs.json"), "costs.json");
}

CostConstants unfitted_constants() {
  return parse_constants(embedded_file("costs_start.json"), "costs_start.json");
}

CostConstants parse_constants(std::string_view text, std::string_view file) {
  const Json json = parse_json(text);
  if (!json.is_object() || !json.contains("operators") || !json["operators"].is_object() ||
      !json.contains("software") || !json["software"].is_object()) {
    fail_input("'{}' must be a JSON object with 'operators' and 'software'.", file);
  }
  CostConstants constants;
  visit_operators(constants.operators, [&](const char* name, double& value) {
    value = number(json["operators"], name, file);
  });
  for (const auto& item : json["software"].items()) {
    const std::string& name = item.key();
    const Json& object = item.value();
    if (!object.is_object()) fail_input("'{}': software '{}' must be an object.", file, name);
    SoftwareConstants software;
    software.name = name;
    visit_software(software,
                   [&](const char* field, double& value) { value = number(object, field, file); });
    software.round_robin = flag(object, "round_robin");
    software.half_gradients = flag(object, "half_gradients");
    constants.software.push_back(std::move(software));
  }
  if (json.contains("errors") && json["errors"].is_object()) {
    constants.median_error = number(json["errors"], "median", file);
    constants.worst_error = number(json["errors"], "worst", file);
  }
  if (json.contains("free")) constants.free = parse_free(json["free"], file);
  check_free(constants, file);
  return constants;
}

Json describe(const CostConstants& constants) {
  CostConstants copy = constants;
  Json json;
  visit_operators(copy.operators,
                  [&](const char* name, double& value) { json["operators"][name] = value; });
  for (SoftwareConstants& software : copy.software) {
    Json& object = json["software"][software.name];
    object["round_robin"] = software.round_robin;
    object["half_gradients"] = software.half_gradients;
    visit_software(software, [&](const char* name, double& value) { object[name] = value; });
  }
  for (const FreeConstant& constant : constants.free) {
    json["free"].push_back(
        {{"constants", constant.names}, {"spread", constant.spread}, {"source", constant.source}});
  }
  json["errors"] = {{"median", constants.median_error}, {"worst", constants.worst_error}};
  return json;
}

}  // namespace millrace::planner
