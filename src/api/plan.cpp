#include "api/plan.h"

#include <algorithm>

#include "api/keywords.h"
#include "base/error.h"
#include "base/json_text.h"
#include "train/plan.h"

namespace millrace::api {

Plan Plan::parse(const std::string& text) {
  Json json = parse_json(text);
  if (!json.is_object() || !json.contains("devices") || !json.contains("fits")) {
    fail_input("This is no plan of a job as JSON.");
  }
  return Plan(std::move(json));
}

bool Plan::fits() const { return described_.at("fits").get<bool>(); }

int64_t Plan::peak_bytes() const {
  int64_t peak = 0;
  for (const Json& device : described_.at("devices")) {
    peak = std::max(peak, device.at("peak_bytes").get<int64_t>());
  }
  return peak;
}

double Plan::seconds_per_step() const {
  return described_.at("predicted_seconds_per_step").get<double>();
}

double Plan::samples_per_second() const {
  return described_.at("predicted_samples_per_second").get<double>();
}

std::string Plan::text() const { return with_keywords(train::plan_text(described_)); }

std::string Plan::json() const { return with_keywords(described_.dump(2)); }

}  // namespace millrace::api
