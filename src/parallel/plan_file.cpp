#include "parallel/plan_file.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace millrace::parallel {
namespace {

constexpr std::string_view kDivisions[] = {"dp", "mp", "pfc"};
constexpr std::string_view kPolicies[] = {"none", "auto", "cheap", "all"};
constexpr std::string_view kTypes[] = {"fp32", "fp16", "bf16"};
constexpr graph::DataType kTypeValues[] = {graph::DataType::f32, graph::DataType::f16,
                                           graph::DataType::bf16};

// Takes fields out of an object, so that what is left is unknown.
class Fields {
 public:
  Fields(Json json, std::string source) : json_(std::move(json)), source_(std::move(source)) {
    if (!json_.is_object()) fail_input("{} must be a JSON object.", source_);
  }

  std::optional<Json> take(const char* name) {
    if (!json_.contains(name)) return {};
    Json value = json_[name];
    json_.erase(name);
    return value;
  }

  std::string text(const char* name) {
    const std::optional<Json> value = take(name);
    if (!value) return {};
    if (!value->is_string()) fail_input("{}: '{}' must be a text.", source_, name);
    return value->get<std::string>();
  }

  template <size_t Count>
  std::optional<size_t> choice(const char* name, const std::string_view (&names)[Count]) {
    const std::optional<Json> value = take(name);
    if (!value) return {};
    const std::string word = value->is_string() ? value->get<std::string>() : value->dump();
    const auto* found = std::find(std::begin(names), std::end(names), word);
    if (found == std::end(names)) {
      fail_input("{}: '{}' is '{}'; choose one of {}.", source_, name, word.substr(0, 40),
                 fmt::join(names, ", "));
    }
    return static_cast<size_t>(found - std::begin(names));
  }

  void require_empty() const {
    if (json_.empty()) return;
    fail_input("{}: there is no field '{}'.", source_, json_.begin().key());
  }

  const Json& rest() const { return json_; }

 private:
  Json json_;
  std::string source_;
};

PlannedHeadDivision parse_head(const Json& json, const std::string& source) {
  Fields fields(json, source);
  PlannedHeadDivision head;
  const std::optional<size_t> parallel = fields.choice("parallel", kDivisions);
  if (!parallel) fail_input("{}: 'parallel' is missing; give dp, mp or pfc.", source);
  head.parallel = static_cast<graph::HeadParallel>(*parallel);
  const std::optional<Json> rate = fields.take("sample_rate");
  if (rate) {
    if (head.parallel != graph::HeadParallel::pfc) {
      fail_input("{}: 'sample_rate' goes with \"parallel\": \"pfc\" alone.", source);
    }
    head.sample_rate = rate->is_number() ? rate->get<double>() : 0;
    if (!(head.sample_rate > 0 && head.sample_rate <= 1)) {
      fail_input("{}: 'sample_rate' is {}; it must be above 0 and at most 1.", source,
                 rate->dump().substr(0, 40));
    }
  }
  fields.require_empty();
  return head;
}

PlanPurpose parse_purpose(const Json& json, const std::string& source) {
  constexpr int64_t kMostSamples = int64_t{1} << 20;
  Fields fields(json, source);
  PlanPurpose purpose;
  purpose.model = fields.text("model");
  purpose.cluster = fields.text("cluster");
  const std::optional<Json> batch = fields.take("batch");
  if (batch) {
    const double number = batch->is_number() ? batch->get<double>() : 0;
    purpose.batch = number >= 1 && number <= kMostSamples ? static_cast<int64_t>(number) : 0;
    if (purpose.batch < 1 || static_cast<double>(purpose.batch) != number) {
      fail_input("{}: 'batch' is {}; give the samples of a device, 1 to {}.", source,
                 batch->dump().substr(0, 40), kMostSamples);
    }
  }
  fields.require_empty();
  return purpose;
}

}  // namespace

std::string_view name_of_division(graph::HeadParallel parallel) {
  return kDivisions[static_cast<size_t>(parallel)];
}

std::string_view name_of_policy(passes::RecomputePolicy policy) {
  return kPolicies[static_cast<size_t>(policy)];
}

Json to_json(const PlanFile& file) {
  Json json = to_json(file.plan);
  json["version"] = kPlanVersion;
  if (file.precision) json["precision"] = passes::precision_name(*file.precision);
  if (file.wire) json["comm_dtype"] = passes::precision_name(*file.wire);
  if (file.recompute) json["recompute"] = name_of_policy(*file.recompute);
  if (file.head) {
    json["head"] = {{"parallel", name_of_division(file.head->parallel)}};
    if (file.head->parallel == graph::HeadParallel::pfc) {
      json["head"]["sample_rate"] = file.head->sample_rate;
    }
  }
  const PlanPurpose& purpose = file.made_for;
  if (!purpose.model.empty()) json["made_for"]["model"] = purpose.model;
  if (purpose.batch > 0) json["made_for"]["batch"] = purpose.batch;
  if (!purpose.cluster.empty()) json["made_for"]["cluster"] = purpose.cluster;
  return json;
}

PlanFile parse_plan_file(const Json& json, std::string_view source) {
  const std::string where(source);
  if (!json.is_object()) fail_input("{}: a plan is a JSON object.", where);
  Fields fields(json, where);
  const std::optional<Json> version = fields.take("version");
  if (version && *version != kPlanVersion) {
    fail_input("{}: its version is {}; this program reads version {}.", where,
               version->dump().substr(0, 40), kPlanVersion);
  }
  PlanFile file;
  if (const auto type = fields.choice("precision", kTypes)) file.precision = kTypeValues[*type];
  if (const auto type = fields.choice("comm_dtype", kTypes)) file.wire = kTypeValues[*type];
  if (const auto policy = fields.choice("recompute", kPolicies)) {
    file.recompute = static_cast<passes::RecomputePolicy>(*policy);
  }
  if (const auto head = fields.take("head")) file.head = parse_head(*head, where + ", head");
  if (const auto purpose = fields.take("made_for")) {
    file.made_for = parse_purpose(*purpose, where + ", made_for");
  }
  file.plan = parse_plan(fields.rest(), source);
  return file;
}

}  // namespace millrace::parallel
