// What a user decides about the backward pass and the update. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/attributes.h"
#include "graph/optimizers.h"
#include "graph/types.h"

namespace millrace::passes {

struct OptimizerSettings {
  std::string name = "sgd";  // of a row of graph/optimizers.h
  double momentum = 0.9;
  double weight_decay = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double trust = 0.001;
  bool nesterov = false;
  double clip_norm = 0;        // the largest norm of all gradients together; 0 is no limit
  bool clip_backbone = false;  // of those that are not of a face network's head
  bool decay_all = false;      // otherwise tensors of rank one or less are not decayed

  // The row that updates of class centres follow.
  const graph::OptimizerDefinition& row_of_centres() const;
};

// As operators that update have them.
graph::Attributes attributes_of(const OptimizerSettings& settings);

struct RateScale {
  std::string pattern;
  double factor = 1;
};

// What of a network is trained, and how fast; patterns are those of base/pattern.h.
struct TrainedSettings {
  std::vector<std::string> freeze = {};
  std::vector<std::string> train_only = {};  // empty: everything
  std::vector<RateScale> rates = {};         // times the learning rate; several may fit
  double layer_decay = 1;                    // of the rate, for each block before the last
  double head_rate = 1;                      // times the learning rate, for a face network's head
  bool freeze_norms = false;                 // batch norms keep statistics, scale and bias
};

// In how many bits tensors are kept and computed with. Parameters, their gradients and the state of
// the optimizer are float32 in any case.
struct PrecisionSettings {
  enum class Arithmetic : uint8_t {
    automatic,  // native where the processor has it
    native,     // convolutions and linear layers multiply numbers of 16 bits
    storage,    // float32; what the backward pass needs is kept in 16 bits
  };
  graph::DataType type = graph::DataType::f32;  // f32, f16 or bf16
  Arithmetic arithmetic = Arithmetic::automatic;
  std::vector<std::string> keep = {};  // layers, or what their names begin with, that stay float32
  std::optional<graph::DataType> communication =
      {};  // what travels between devices; else as `type`

  bool is_half() const { return type != graph::DataType::f32; }
  // The type in which gradients and what stages exchange travel.
  graph::DataType wire() const { return communication.value_or(type); }
};

// As the flags and summaries call it: fp32, fp16, bf16.
std::string_view precision_name(graph::DataType type);
std::string_view name_of(PrecisionSettings::Arithmetic arithmetic);

// Which forward operators run again in the backward pass instead of keeping what they made.
enum class RecomputePolicy : uint8_t {
  none,
  automatic,  // cheap ones, where that lowers the peak; any, where a limit demands it
  cheap,      // every cheap one, if that lowers the peak at all
  all,        // any, so that the peak is the least that is found
};

}  // namespace millrace::passes
