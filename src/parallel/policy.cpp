#include "parallel/policy.h"

#include <array>

#include "base/error.h"

namespace millrace::parallel {
namespace {

constexpr std::array<std::string_view, 3> kParallelisms = {"data", "model", "hybrid"};
constexpr std::array<std::string_view, 3> kLayerShardings = {"data", "split_output", "split_input"};

template <typename Value>
Value parse(const std::array<std::string_view, 3>& names, std::string_view text,
            std::string_view source) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == text) return static_cast<Value>(i);
  }
  fail_input("{} is '{}'; use {}, {} or {}.", source, text.substr(0, 60), names[0], names[1],
             names[2]);
}

}  // namespace

std::string_view name_of(Parallelism parallelism) {
  return kParallelisms.at(static_cast<size_t>(parallelism));
}

std::string_view name_of(LayerSharding sharding) {
  return kLayerShardings.at(static_cast<size_t>(sharding));
}

Parallelism parse_parallelism(std::string_view text, std::string_view source) {
  return parse<Parallelism>(kParallelisms, text, source);
}

LayerSharding parse_layer_sharding(std::string_view text, std::string_view source) {
  return parse<LayerSharding>(kLayerShardings, text, source);
}

}  // namespace millrace::parallel
