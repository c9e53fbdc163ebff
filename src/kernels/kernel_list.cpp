#include <fmt/format.h>

#include <stdexcept>
#include <unordered_map>

#include "base/error.h"
#include "kernels/kernel.h"
#include "kernels/support/widened.h"

namespace millrace::kernels {

#define MILLRACE_FAMILY(family)        \
  namespace family {                   \
  std::vector<KernelFamily> kernels(); \
  }
#include "graph/operators.def"
#undef MILLRACE_FAMILY

const KernelFamily& kernels_of(std::string_view type) {
  static const auto by_type = [] {
    std::unordered_map<std::string_view, KernelFamily> map;
#define MILLRACE_FAMILY(family) \
  for (const KernelFamily& entry : family::kernels()) map.emplace(entry.type, entry);
#include "graph/operators.def"
#undef MILLRACE_FAMILY
    return map;
  }();
  const auto found = by_type.find(type);
  if (found == by_type.end()) throw std::logic_error(fmt::format("no kernels for '{}'", type));
  return found->second;
}

std::unique_ptr<Kernel> make_kernel(const KernelRequest& request, std::string* chosen) {
  std::string refusals;
  const auto& implementations = kernels_of(request.op.type).implementations;
  const bool halves = has_halves(request);
  // First as it is; then, for tensors of 16 bits that nobody takes, between copies.
  for (const bool widened : {false, true}) {
    if (widened && !halves) break;
    for (size_t i = 0; i < implementations.size(); ++i) {
      const KernelImplementation& way = implementations[i];
      if (request.options.reference_only && i + 1 != implementations.size()) continue;
      if (!widened && halves && !way.takes_halves) continue;
      std::string refusal = "refused";
      auto kernel = widened ? make_widened(way, request, &refusal) : way.create(request, &refusal);
      if (kernel != nullptr) {
        if (chosen != nullptr) *chosen = std::string(way.name) + (widened ? " in f32" : "");
        return kernel;
      }
      refusals += fmt::format(" {}: {};", way.name, refusal);
    }
  }
  fail_input("No kernel can run layer '{}' ({});{}", request.op.name, request.op.type, refusals);
}

LayoutWish layouts_of(const KernelRequest& request) {
  const KernelFamily& family = kernels_of(request.op.type);
  if (family.layouts != nullptr && !request.options.reference_only) return family.layouts(request);
  return {std::vector<graph::Layout>(request.inputs.size()),
          std::vector<graph::Layout>(request.outputs.size())};
}

}  // namespace millrace::kernels
