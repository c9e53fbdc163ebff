// What a user says about how a network is divided over devices. Plain data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace millrace::parallel {

// data: every device has all parameters and some samples. model: linear and convolution layers are
// split, every device sees all samples. hybrid: convolutions as in data, linear layers split, the
// loss taken over split classes.
enum class Parallelism : uint8_t { data, model, hybrid };

// One linear or convolution layer: its samples, its outputs or its inputs are divided.
enum class LayerSharding : uint8_t { data, split_output, split_input };

struct ShardingPolicy {
  Parallelism parallelism = Parallelism::data;
  std::map<std::string, LayerSharding> layers;  // by name; these come before `parallelism`
  bool synchronise_batch_norm = false;          // statistics over the samples of all devices
};

std::string_view name_of(Parallelism parallelism);
std::string_view name_of(LayerSharding sharding);

// Throw InputError that starts with `source` ("‹parallel›", "plan.json: layer 'fc1'").
Parallelism parse_parallelism(std::string_view text, std::string_view source = "‹parallel›");
LayerSharding parse_layer_sharding(std::string_view text, std::string_view source);

}  // namespace millrace::parallel
