#include "data/weights/torch_file.h"

#include "data/formats/byte_cursor.h"
#include "data/pickle/pickle.h"
#include "data/weights/torch_objects.h"
#include "data/weights/zip_archive.h"

namespace millrace::data {
namespace {

using Kind = PickleValue::Kind;
using namespace std::string_view_literals;

constexpr std::string_view kZipStart = "PK\3\4";
// 0x1950a86a20f9469cfc6c, which the older format begins with.
constexpr std::string_view kOlderMagic = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv;
constexpr int64_t kOlderVersion = 1001;

// Whole modules of the older format name their classes so, with the source where there was one.
bool refers_to_class(const Pickle& pickle, PickleId persistent) {
  const std::vector<PickleId>& fields = pickle.elements(pickle[persistent].arguments);
  return !fields.empty() && pickle[fields[0]].text == "module";
}

std::vector<TorchStorage> storages_in(const Pickle& pickle) {
  std::vector<TorchStorage> storages;
  for (PickleId id = 0; id < pickle.count(); ++id) {
    if (pickle[id].kind != Kind::persistent || refers_to_class(pickle, id)) continue;
    storages.push_back(storage_of(pickle, id));
  }
  return storages;
}

void require_little_endian(std::string_view order) {
  if (order != "little") fail_data("it was written by a big-endian machine");
}

std::vector<WeightTensor> parse_archive(std::span<const std::byte> bytes, bool checked) {
  const ZipArchive archive(bytes);
  const auto objects = archive.find("data.pkl", true);
  if (!objects) fail_data("it is a zip archive without data.pkl, so not one of torch.save's");
  if (const auto order = archive.find("byteorder", true)) require_little_endian(as_text(*order));
  const Pickle pickle = read_pickle(*objects);
  TorchMemory memory;
  for (const TorchStorage& storage : storages_in(pickle)) {
    if (memory.contains(storage.key)) continue;
    const auto content = archive.find("data/" + std::string(storage.key), checked);
    if (content) memory[std::string(storage.key)] = *content;
  }
  return state_of(pickle, memory);
}

// Four pickles (magic number, version, the machine, the objects), the list of keys, the storages.
std::vector<WeightTensor> parse_older(std::span<const std::byte> bytes) {
  uint64_t position = 0;
  const auto next = [&] {
    try {
      Pickle pickle = read_pickle(bytes.subspan(position));
      position += pickle.size();
      return pickle;
    } catch (const PickleFault& fault) {
      throw PickleFault(position + fault.offset(), fault.what());
    }
  };
  const Pickle magic = next();
  if (magic[magic.root()].kind != Kind::large || magic[magic.root()].text != kOlderMagic) {
    fail_data("it is a pickle, but not one of torch.save's");
  }
  const Pickle version = next();
  if (version[version.root()].integer != kOlderVersion) fail_data("its version is unknown");
  const Pickle machine = next();
  if (const auto order = machine.find(machine.root(), "little_endian")) {
    require_little_endian(machine[*order].integer == 1 ? "little" : "big");
  }
  const Pickle pickle = next();
  const Pickle keys = next();
  std::map<std::string_view, TorchStorage> storages;
  for (const TorchStorage& storage : storages_in(pickle)) storages.emplace(storage.key, storage);
  TorchMemory memory;
  ByteCursor cursor(bytes.subspan(position));
  for (const PickleId id : keys.elements(keys.root())) {
    const std::string_view key = keys[id].text;
    const auto storage = storages.find(key);
    if (storage == storages.end()) fail_data("it stores '{}', which nothing refers to", key);
    const auto elements = cursor.little_endian<int64_t>();
    const int64_t size = size_of(storage->second.type);
    int64_t total = 0;
    if (size == 0 || elements < 0 || __builtin_mul_overflow(elements, size, &total)) {
      fail_data("its storage '{}' has no size", key);
    }
    memory[std::string(key)] = cursor.take(static_cast<uint64_t>(total));
  }
  return state_of(pickle, memory);
}

}  // namespace

bool is_torch_file(std::span<const std::byte> bytes) {
  constexpr size_t kSafetensorsHeader = 8;
  const std::string_view text = as_text(bytes);
  if (text.starts_with(kZipStart)) return true;
  const bool is_safetensors = text.size() > kSafetensorsHeader && text[kSafetensorsHeader] == '{';
  return text.starts_with('\x80') && !is_safetensors;
}

std::vector<WeightTensor> parse_torch_file(std::span<const std::byte> bytes, std::string_view file,
                                           bool checked) {
  try {
    return as_text(bytes).starts_with(kZipStart) ? parse_archive(bytes, checked)
                                                 : parse_older(bytes);
  } catch (const PickleFault& fault) {
    fail_input("'{}' cannot be read as a PyTorch file: {} (at byte {} of its pickle).", file,
               fault.what(), fault.offset());
  } catch (const BadData& error) {
    fail_input("'{}' cannot be read as a PyTorch file: {}.", file, error.what());
  }
}

}  // namespace millrace::data
