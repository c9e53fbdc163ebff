#include "data/weights/torch_objects.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

namespace millrace::data {
namespace {

using Kind = PickleValue::Kind;

struct TorchType {
  std::string_view storage;
  std::string_view element;
  WeightType type;
};

constexpr std::array<TorchType, 12> kTorchTypes = {{
    {"DoubleStorage", "float64", WeightType::f64},
    {"FloatStorage", "float32", WeightType::f32},
    {"HalfStorage", "float16", WeightType::f16},
    {"BFloat16Storage", "bfloat16", WeightType::bf16},
    {"", "float8_e4m3fn", WeightType::f8_e4m3},
    {"", "float8_e5m2", WeightType::f8_e5m2},
    {"LongStorage", "int64", WeightType::s64},
    {"IntStorage", "int32", WeightType::s32},
    {"ShortStorage", "int16", WeightType::s16},
    {"CharStorage", "int8", WeightType::s8},
    {"ByteStorage", "uint8", WeightType::u8},
    {"BoolStorage", "bool", WeightType::boolean},
}};

// Where a checkpoint may keep the weights, the most telling first.
constexpr std::array<std::string_view, 9> kPlaces = {
    "state_dict", "model_state_dict", "model",  "module", "state_dict_backbone", "backbone",
    "net",        "network",          "weights"};

constexpr int kDeepest = 100;

class StateFinder {
 public:
  StateFinder(const Pickle& pickle, const TorchMemory& memory) : pickle_(pickle), memory_(memory) {}

  // Nothing if there are no tensors below.
  std::vector<WeightTensor> search(PickleId id, int depth) {
    visit(depth);
    const PickleValue& value = pickle_[id];
    std::vector<WeightTensor> found;
    if (value.kind == Kind::object) {
      add_module(id, "", depth, found);
      return found;
    }
    if (value.kind != Kind::dictionary) return found;
    for (const std::string_view place : kPlaces) {
      if (const auto inner = pickle_.find(id, place); inner && !is_tensor(*inner)) {
        found = search(*inner, depth + 1);
        if (!found.empty()) return found;
      }
    }
    each_entry(id, [&](std::string_view name, PickleId entry) {
      if (is_tensor(entry)) found.push_back(tensor(entry, name));
    });
    if (!found.empty()) return found;
    std::vector<std::string> holders;
    each_entry(id, [&](std::string_view name, PickleId entry) {
      std::vector<WeightTensor> inner = search(entry, depth + 1);
      if (inner.empty()) return;
      holders.emplace_back(name);
      found = std::move(inner);
    });
    if (holders.size() > 1) {
      fail_data("it has weights in '{}'; save the ones that are wanted alone",
                fmt::join(holders, "', '"));
    }
    return found;
  }

 private:
  void visit(int depth) {
    if (depth > kDeepest || ++visits_ > 4 * pickle_.count() + 1000) {
      fail_data("it nests too deep or refers to its parts too often");
    }
  }

  template <typename Action>
  void each_entry(PickleId dictionary, const Action& action) {
    const std::vector<PickleId>& items = pickle_[dictionary].items;
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      const PickleValue& key = pickle_[items[i]];
      if (key.kind == Kind::text || key.kind == Kind::bytes) action(key.text, items[i + 1]);
    }
  }

  // The tensor that `id` is, with parameters and subclasses of tensors taken off.
  std::optional<PickleId> bare(PickleId id) const {
    for (int depth = 0; depth < 8; ++depth) {
      const PickleValue& value = pickle_[id];
      if (value.kind != Kind::object) return {};
      const PickleValue& callable = pickle_[value.callable];
      if (callable.is_global("torch._utils", "_rebuild_tensor") ||
          callable.is_global("torch._utils", "_rebuild_tensor_v2") ||
          callable.is_global("torch._utils", "_rebuild_tensor_v3")) {
        return id;
      }
      const std::vector<PickleId>& arguments = pickle_.elements(value.arguments);
      if ((callable.is_global("torch._utils", "_rebuild_parameter") ||
           callable.is_global("torch._utils", "_rebuild_parameter_with_state")) &&
          !arguments.empty()) {
        id = arguments[0];
        continue;
      }
      return {};
    }
    return {};
  }

  // A tensor with attributes of its own: (function, type, its arguments, attributes).
  const std::vector<PickleId>* typed_arguments(PickleId id) const {
    const PickleValue& value = pickle_[id];
    if (value.kind != Kind::object) return nullptr;
    const PickleValue& callable = pickle_[value.callable];
    if (!callable.is_global("torch._tensor", "_rebuild_from_type_v2") &&
        !callable.is_global("torch.tensor", "_rebuild_from_type_v2")) {
      return nullptr;
    }
    const std::vector<PickleId>& outer = pickle_.elements(value.arguments);
    if (outer.size() < 3) return nullptr;
    const PickleValue& function = pickle_[outer[0]];
    if (function.kind != Kind::global || function.module != "torch._utils") return nullptr;
    const std::vector<PickleId>& inner = pickle_.elements(outer[2]);
    if (!function.text.starts_with("_rebuild_parameter")) return &inner;
    const auto tensor = inner.empty() ? std::nullopt : bare(inner[0]);
    return tensor ? &pickle_.elements(pickle_[*tensor].arguments) : nullptr;
  }

  bool is_tensor(PickleId id) const { return bare(id) || typed_arguments(id) != nullptr; }

  int64_t number(PickleId id) const {
    const PickleValue& value = pickle_[id];
    if (value.kind != Kind::integer) fail_data("it has a tensor with something else than numbers");
    return value.integer;
  }

  WeightTensor tensor(PickleId id, std::string_view name) {
    visit(0);
    const std::optional<PickleId> plain = bare(id);
    const std::vector<PickleId>& arguments =
        plain ? pickle_.elements(pickle_[*plain].arguments) : *typed_arguments(id);
    if (arguments.size() < 4) fail_data("its tensor '{}' lacks its shape", name);
    TorchStorage storage = storage_of(pickle_, arguments[0]);
    if (storage.type == WeightType::u8 || storage.type == WeightType::other) {
      retype(storage, arguments);
    }
    if (storage.type == WeightType::other) {
      fail_data("its tensor '{}' has the type {}, which cannot be read", name, storage.type_name);
    }
    const auto bytes = memory_.find(storage.key);
    if (bytes == memory_.end()) fail_data("the numbers of its tensor '{}' are missing", name);
    WeightTensor tensor = {.name = std::string(name), .type = storage.type};
    for (const PickleId extent : pickle_.elements(arguments[2])) {
      tensor.shape.push_back(number(extent));
    }
    for (const PickleId stride : pickle_.elements(arguments[3])) {
      tensor.strides.push_back(number(stride));
    }
    int64_t first = 0;
    const auto size = static_cast<int64_t>(bytes->second.size()) / size_of(storage.type);
    const bool fits = !__builtin_add_overflow(number(arguments[1]), storage.first, &first) &&
                      first >= 0 && first <= size;
    if (fits)
      tensor.data = bytes->second.subspan(static_cast<size_t>(first * size_of(tensor.type)));
    if (!fits || !lies_inside(tensor)) {
      fail_data("its tensor '{}' reaches beyond the numbers that are stored", name);
    }
    return tensor;
  }

  // A tensor of a newer kind says its type itself.
  void retype(TorchStorage& storage, const std::vector<PickleId>& arguments) const {
    if (arguments.size() < 7 || pickle_[arguments[6]].kind != Kind::global) return;
    const PickleValue& named = pickle_[arguments[6]];
    storage.type_name = named.text;
    for (const TorchType& type : kTorchTypes) {
      if (named.module == "torch" && type.element == named.text) storage.type = type.type;
    }
  }

  void add_tensor(PickleId entry, const std::string& name, std::vector<WeightTensor>& found) {
    if (is_tensor(entry)) found.push_back(tensor(entry, name));
  }

  void add_module(PickleId id, const std::string& prefix, int depth,
                  std::vector<WeightTensor>& found) {
    visit(depth);
    const PickleValue& value = pickle_[id];
    if (value.kind != Kind::object || value.state == kNoPickleValue) return;
    const PickleId state = value.state;
    const auto parameters = pickle_.find(state, "_parameters");
    const auto buffers = pickle_.find(state, "_buffers");
    const auto modules = pickle_.find(state, "_modules");
    const auto name = [&](std::string_view own) { return prefix + std::string(own); };
    if (!parameters || !buffers || !modules) {
      if (!pickle_[value.callable].module.starts_with("__torch__")) return;
      each_entry(state, [&](std::string_view own, PickleId entry) {  // a scripted module
        add_tensor(entry, name(own), found);
        add_module(entry, name(own) + ".", depth + 1, found);
      });
      return;
    }
    const std::set<std::string_view> passing = names_in(state, "_non_persistent_buffers_set");
    each_entry(*parameters,
               [&](std::string_view own, PickleId entry) { add_tensor(entry, name(own), found); });
    each_entry(*buffers, [&](std::string_view own, PickleId entry) {
      if (!passing.contains(own)) add_tensor(entry, name(own), found);
    });
    each_entry(*modules, [&](std::string_view own, PickleId entry) {
      add_module(entry, name(own) + ".", depth + 1, found);
    });
  }

  // The texts of a set, which older protocols make of a list by a call.
  std::set<std::string_view> names_in(PickleId dictionary, std::string_view key) const {
    std::set<std::string_view> names;
    auto id = pickle_.find(dictionary, key);
    if (id && pickle_[*id].kind == Kind::object) {
      const std::vector<PickleId>& arguments = pickle_.elements(pickle_[*id].arguments);
      id = arguments.size() == 1 ? std::optional(arguments[0]) : std::nullopt;
    }
    if (!id) return names;
    for (const PickleId item : pickle_[*id].items) names.insert(pickle_[item].text);
    return names;
  }

  const Pickle& pickle_;
  const TorchMemory& memory_;
  size_t visits_ = 0;
};

// What data parallelism and compilation put before every name.
void strip_wrappers(std::vector<WeightTensor>& tensors) {
  for (const std::string_view wrapper : {"module.", "_orig_mod.", "module."}) {
    const bool all = std::all_of(tensors.begin(), tensors.end(), [&](const WeightTensor& tensor) {
      return tensor.name.starts_with(wrapper);
    });
    if (!all) continue;
    for (WeightTensor& tensor : tensors) tensor.name.erase(0, wrapper.size());
  }
}

// torchvision's published DenseNets say "denselayer1.norm.1.weight" where its modules have
// "denselayer1.norm1.weight".
void join_numbers(std::vector<WeightTensor>& tensors) {
  for (WeightTensor& tensor : tensors) {
    const size_t layer = tensor.name.find(".denselayer");
    if (layer == std::string::npos) continue;
    for (const std::string_view part : {".norm.1.", ".norm.2.", ".conv.1.", ".conv.2."}) {
      const size_t at = tensor.name.find(part, layer);
      if (at != std::string::npos) tensor.name.erase(at + part.rfind('.') - 2, 1);
    }
  }
}

// InsightFace's checkpoints keep the classifier's part of a process beside the backbone.
void add_centres(const Pickle& pickle, const TorchMemory& memory,
                 std::vector<WeightTensor>& tensors) {
  if (pickle[pickle.root()].kind != Kind::dictionary) return;
  const auto head = pickle.find(pickle.root(), "state_dict_softmax_partial_fc");
  if (!head) return;
  for (WeightTensor& tensor : StateFinder(pickle, memory).search(*head, 0)) {
    if (tensor.name != "weight" || tensor.shape.size() != 2) continue;
    tensor.name = kCentres;
    tensors.push_back(std::move(tensor));
  }
}

}  // namespace

TorchStorage storage_of(const Pickle& pickle, PickleId persistent) {
  const PickleValue& value = pickle[persistent];
  if (value.kind != Kind::persistent) fail_data("it has a tensor of something else than a storage");
  const std::vector<PickleId>& fields = pickle.elements(value.arguments);
  if (fields.size() < 5 || pickle[fields[0]].text != "storage") {
    fail_data("it refers to something else than storages");
  }
  const PickleValue& type = pickle[fields[1]];
  const PickleValue& count = pickle[fields[4]];
  TorchStorage storage = {.key = pickle[fields[2]].text, .type_name = type.text};
  for (const TorchType& known : kTorchTypes) {
    const bool in_torch = type.module == "torch" || type.module == "torch.cuda";
    if (in_torch && !known.storage.empty() && known.storage == type.text) storage.type = known.type;
  }
  if (type.is_global("torch.storage", "UntypedStorage") ||
      type.is_global("torch", "UntypedStorage")) {
    storage.type = WeightType::u8;
  }
  if (count.kind != Kind::integer || count.integer < 0) fail_data("it has a storage of no size");
  storage.elements = count.integer;
  // Older files: a part of a storage, as (its own key, the first element, their number).
  if (fields.size() > 5 && pickle[fields[5]].kind == Kind::sequence) {
    const std::vector<PickleId>& part = pickle.elements(fields[5]);
    if (part.size() < 2 || pickle[part[1]].kind != Kind::integer || pickle[part[1]].integer < 0) {
      fail_data("it has a part of a storage that begins nowhere");
    }
    storage.first = pickle[part[1]].integer;
  }
  return storage;
}

std::vector<WeightTensor> state_of(const Pickle& pickle, const TorchMemory& memory) {
  std::vector<WeightTensor> tensors = StateFinder(pickle, memory).search(pickle.root(), 0);
  if (tensors.empty()) fail_data("it holds no state dictionary and no module");
  strip_wrappers(tensors);
  join_numbers(tensors);
  add_centres(pickle, memory, tensors);
  std::set<std::string_view> names;
  for (const WeightTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) fail_data("it has two tensors '{}'", tensor.name);
  }
  return tensors;
}

}  // namespace millrace::data
