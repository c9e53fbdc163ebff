#include "profile/costs_text.h"

#include "profile/json_fields.h"

namespace millrace::profile {

template <typename Visit>
void visit_fields(simulate::CostedStep& step, Visit& visit) {
  visit("kind", step.kind);
  visit("phase", step.phase);
  visit("seconds", step.seconds);
  visit("busy", step.busy_seconds);
  visit("bytes", step.bytes);
  visit("packed", step.packed_bytes);
  visit("ticket", step.ticket);
  visit("collective", step.collective);
}

template <typename Visit>
void visit_fields(CostsOfMember& one, Visit& visit) {
  visit("stage", one.stage);
  visit("member", one.member);
  visit("spread", one.spread);
  visit("copies", one.copies);
  visit("tasks", one.program.tasks);
  visit("persistent", one.program.persistent_bytes);
  visit("saved", one.program.saved_bytes);
  visit("scratch", one.program.scratch_bytes);
}

namespace {

struct AllCosts {
  std::vector<CostsOfMember> costs;
};

template <typename Visit>
void visit_fields(AllCosts& all, Visit& visit) {
  visit("costs", all.costs);
}

}  // namespace

std::string costs_to_text(const std::vector<CostsOfMember>& costs) {
  AllCosts all{costs};
  return written(all).dump();
}

std::vector<CostsOfMember> costs_from_text(std::string_view text) {
  const Json json = Json::parse(text);
  const FieldReader reader(json, "another process");
  AllCosts all;
  visit_fields(all, reader);
  return std::move(all.costs);
}

}  // namespace millrace::profile
