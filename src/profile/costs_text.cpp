#include "profile/costs_text.h"

#include "base/json.h"

namespace millrace::profile {
namespace {

Json to_json(const simulate::CostedSteps& steps) {
  Json list = Json::array();
  for (const simulate::CostedStep& step : steps) {
    list.push_back({static_cast<int>(step.kind), static_cast<int>(step.phase), step.seconds,
                    step.busy_seconds, step.bytes, step.packed_bytes, step.ticket,
                    static_cast<int>(step.collective)});
  }
  return list;
}

Json to_json(const simulate::ByWork<simulate::CostedSteps>& tasks) {
  Json list = Json::array();
  for (const simulate::CostedSteps& steps : tasks) list.push_back(to_json(steps));
  return list;
}

simulate::CostedSteps steps_from(const Json& list) {
  simulate::CostedSteps steps;
  for (const Json& entry : list) {
    steps.push_back({static_cast<simulate::CostedStep::Kind>(entry[0].get<int>()),
                     static_cast<graph::Phase>(entry[1].get<int>()), entry[2].get<double>(),
                     entry[3].get<double>(), entry[4].get<double>(), entry[5].get<double>(),
                     entry[6].get<int64_t>(),
                     static_cast<simulate::Collective>(entry[7].get<int>())});
  }
  return steps;
}

}  // namespace

std::string costs_to_text(const std::vector<CostsOfMember>& costs) {
  Json list = Json::array();
  for (const CostsOfMember& one : costs) {
    const simulate::CostedProgram& program = one.program;
    list.push_back({{"stage", one.stage},
                    {"member", one.member},
                    {"spread", one.spread},
                    {"copies", one.copies},
                    {"tasks", to_json(program.tasks)},
                    {"persistent", program.persistent_bytes},
                    {"saved", program.saved_bytes},
                    {"scratch", program.scratch_bytes}});
  }
  return list.dump();
}

std::vector<CostsOfMember> costs_from_text(std::string_view text) {
  std::vector<CostsOfMember> costs;
  for (const Json& entry : Json::parse(text)) {
    CostsOfMember one;
    one.stage = entry["stage"].get<int>();
    one.member = entry["member"].get<int>();
    one.spread = entry["spread"].get<double>();
    one.copies = entry["copies"].get<std::map<std::string, double>>();
    auto steps = one.program.tasks.begin();
    for (const Json& task : entry["tasks"]) *steps++ = steps_from(task);
    one.program.persistent_bytes = entry["persistent"].get<double>();
    one.program.saved_bytes = entry["saved"].get<double>();
    one.program.scratch_bytes = entry["scratch"].get<double>();
    costs.push_back(std::move(one));
  }
  return costs;
}

}  // namespace millrace::profile
