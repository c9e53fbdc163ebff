#include "protobuf_mutator.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "mutator.h"

namespace millrace {
namespace {

constexpr int kDeepest = 8;
enum Kind : uint64_t { kNumber = 0, kEight = 1, kBytes = 2, kFour = 5 };

// A number, or bytes that are the fields of a message where they can be.
struct WirePart {
  uint64_t key = 0;  // field number and kind
  uint64_t number = 0;
  std::string bytes = {};
  std::vector<WirePart> inner = {};

  uint64_t kind() const { return key & 7; }
};
using WireMessage = std::vector<WirePart>;

std::optional<uint64_t> take_number(std::string_view& bytes) {
  uint64_t number = 0;
  for (unsigned shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    number |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return number;
  }
  return {};
}

std::optional<WireMessage> take_message(std::string_view bytes, int depth) {
  constexpr uint64_t kMostFields = 32;
  WireMessage message;
  while (!bytes.empty()) {
    WirePart part;
    const std::optional<uint64_t> key = take_number(bytes);
    if (!key || *key >> 3 == 0 || *key >> 3 > kMostFields) return {};
    part.key = *key;
    uint64_t length = part.kind() == kEight ? 8 : 4;
    if (part.kind() == kNumber || part.kind() == kBytes) {
      const std::optional<uint64_t> number = take_number(bytes);
      if (!number) return {};
      part.number = *number;
      length = part.kind() == kNumber ? 0 : *number;
    } else if (part.kind() != kEight && part.kind() != kFour) {
      return {};
    }
    if (length > bytes.size()) return {};
    part.bytes = bytes.substr(0, length);
    bytes.remove_prefix(length);
    if (part.kind() == kBytes && depth > 0) {
      part.inner = take_message(part.bytes, depth - 1).value_or(WireMessage());
    }
    message.push_back(std::move(part));
  }
  return message;
}

void put_number(std::string& bytes, uint64_t number) {
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>(number | 0x80);
  bytes += static_cast<char>(number);
}

std::string joined(const WireMessage& message) {
  std::string bytes;
  for (const WirePart& part : message) {
    put_number(bytes, part.key);
    const std::string inner = part.inner.empty() ? part.bytes : joined(part.inner);
    if (part.kind() == kNumber) put_number(bytes, part.number);
    if (part.kind() == kBytes) put_number(bytes, inner.size());
    if (part.kind() != kNumber) bytes += inner;
  }
  return bytes;
}

// Every field, with the message that it is in.
struct WirePlace {
  WireMessage* message = nullptr;
  size_t at = 0;
  int depth = 0;

  WirePart& part() const { return (*message)[at]; }
};

void list_places(WireMessage& message, int depth, std::vector<WirePlace>& places) {
  for (size_t i = 0; i < message.size(); ++i) {
    places.push_back({&message, i, depth});
    list_places(message[i].inner, depth + 1, places);
  }
}

class WireMutation {
 public:
  WireMutation(std::span<const std::string_view> words, unsigned seed)
      : words_(words), chance_(seed + 1) {}

  size_t below(size_t bound) { return bound == 0 ? 0 : chance_() % bound; }

  void change(WireMessage& whole, size_t most) {
    std::vector<WirePlace> places;
    list_places(whole, 0, places);
    if (places.empty()) return;
    const WirePlace place = places[below(places.size())];
    switch (below(8)) {
      case 0:
        place.message->erase(place.message->begin() + static_cast<std::ptrdiff_t>(place.at));
        return;
      case 1: {
        const WirePart copy = place.part();
        place.message->insert(
            place.message->begin() + static_cast<std::ptrdiff_t>(below(place.message->size())),
            copy);
        return;
      }
      case 2:
        std::swap(place.part(), (*place.message)[below(place.message->size())]);
        return;
      case 3:
      case 4:
        return exchange(place, places);
      default:
        return change_part(place.part(), most);
    }
  }

 private:
  // For another field of the same number, as deep: another node, input, or extent.
  void exchange(const WirePlace& place, const std::vector<WirePlace>& places) {
    std::vector<WirePart> same;
    for (const WirePlace& other : places) {
      if (other.depth == place.depth && other.part().key == place.part().key) {
        same.push_back(other.part());
      }
    }
    place.part() = same[below(same.size())];
  }

  void change_part(WirePart& part, size_t most) {
    constexpr uint64_t kNumbers[] = {0,
                                     1,
                                     2,
                                     3,
                                     7,
                                     16,
                                     255,
                                     65536,
                                     0x7FFFFFFF,
                                     0xFFFFFFFF,
                                     1 << 24,
                                     uint64_t{1} << 40,
                                     uint64_t{1} << 62,
                                     ~uint64_t{0},
                                     ~uint64_t{6}};
    if (part.kind() == kNumber) {
      const size_t way = below(4);
      part.number = way == 0   ? part.number + 1
                    : way == 1 ? part.number - 1
                               : kNumbers[below(std::size(kNumbers))];
      return;
    }
    const auto known = std::find(words_.begin(), words_.end(), part.bytes);
    if (known != words_.end() && below(4) != 0) {
      part.bytes = words_[below(words_.size())];
    } else {
      part.bytes.resize(part.bytes.size() + 32);
      const size_t size = part.bytes.size() - 32;
      const size_t limit = std::max<size_t>(1, std::min(part.bytes.size(), most));
      part.bytes.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(part.bytes.data()),
                                         std::min(size, limit), limit));
      const size_t length = part.kind() == kEight ? 8 : 4;
      if (part.kind() != kBytes) part.bytes.resize(length);
    }
    part.inner.clear();
  }

  std::span<const std::string_view> words_;
  std::minstd_rand chance_;
};

}  // namespace

size_t mutate_protobuf(std::span<const std::string_view> words, uint8_t* data, size_t size,
                       size_t most, unsigned seed) {
  WireMutation mutation(words, seed);
  std::optional<WireMessage> message =
      take_message({reinterpret_cast<const char*>(data), size}, kDeepest);
  if (!message || message->empty() || mutation.below(4) == 0) {
    return LLVMFuzzerMutate(data, size, most);
  }
  for (size_t left = 1 + mutation.below(3); left > 0; --left) mutation.change(*message, most);
  const std::string bytes = joined(*message);
  if (bytes.size() > most) return LLVMFuzzerMutate(data, size, most);
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}

}  // namespace millrace
