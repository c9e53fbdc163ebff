// Tensors and modules among the values of a pickle that PyTorch wrote.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/pickle/pickle.h"
#include "data/weights/weight_tensor.h"

namespace millrace::data {

// A piece of memory that tensors are views of, as a pickle refers to it.
struct TorchStorage {
  std::string_view key;
  WeightType type = WeightType::other;
  std::string_view type_name;
  int64_t elements = 0;
  int64_t first = 0;  // the reference means the elements from here on
};

// What a persistent value refers to. Throws BadData if it is no storage.
TorchStorage storage_of(const Pickle& pickle, PickleId persistent);

// The bytes of storages by their keys.
using TorchMemory = std::map<std::string, std::span<const std::byte>, std::less<>>;

// The centres of a margin head, as Millrace's own files call them.
inline constexpr std::string_view kCentres = "head.centres";

// The tensors of the state dictionary or module that the pickle's root is or holds, under their
// names in it. Throws BadData if there is none, or more than one that could be meant.
std::vector<WeightTensor> state_of(const Pickle& pickle, const TorchMemory& memory);

}  // namespace millrace::data
