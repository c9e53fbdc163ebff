#include "data/formats/face_pairs.h"

#include <charconv>
#include <limits>
#include <optional>
#include <unordered_map>

#include "data/formats/byte_cursor.h"

namespace millrace {
namespace {

constexpr size_t kDeepestStack = size_t{1} << 22;
constexpr uint8_t kNewestProtocol = 5;

// Pickle's opcodes, those that lists of bytes and booleans need.
enum Opcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kInt = 'I',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kAppend = 'a',
  kAppends = 'e',
  kGet = 'g',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kList = 'l',
  kEmptyList = ']',
  kPut = 'p',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kTuple = 't',
  kEmptyTuple = ')',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kBinBytes8 = 0x8e,
  kMemoize = 0x94,
  kFrame = 0x95,
  kByteArray8 = 0x96,
};

struct Item {
  enum class Kind : uint8_t { mark, number, bytes, sequence };
  Kind kind = Kind::mark;
  int64_t number = 0;  // or the index of the sequence
  std::span<const std::byte> bytes;
};

using Sequence = std::vector<Item>;

// A stack machine that knows no objects. Sequences are referred to by number, so that copies
// through the memo cost nothing.
class Machine {
 public:
  explicit Machine(std::span<const std::byte> bytes) : cursor_(bytes), size_(bytes.size()) {}

  uint64_t offset() const { return offset_; }

  // The two lists that the pickle consists of.
  std::pair<const Sequence*, const Sequence*> run() {
    while (true) {
      offset_ = size_ - cursor_.rest().size();
      const auto opcode = cursor_.little_endian<uint8_t>();
      if (opcode == kStop) break;
      step(opcode);
      if (stack_.size() > kDeepestStack) fail_data("it nests or lists too much at once");
    }
    const Sequence& top = sequence(pop());
    if (top.size() != 2) fail_data("it holds {} objects where two lists belong", top.size());
    return {&sequence(top[0]), &sequence(top[1])};
  }

 private:
  void step(uint8_t opcode) {
    switch (opcode) {
      case kProto:
        if (const auto version = cursor_.little_endian<uint8_t>(); version > kNewestProtocol) {
          fail_data("its pickle protocol {} is unknown", version);
        }
        return;
      case kFrame:
        cursor_.take(8);
        return;
      case kMark:
        return stack_.push_back({});
      case kPop:
        pop();
        return;
      case kNewTrue:
      case kNewFalse:
        return push_number(opcode == kNewTrue ? 1 : 0);
      case kBinInt1:
        return push_number(cursor_.little_endian<uint8_t>());
      case kBinInt2:
        return push_number(cursor_.little_endian<uint16_t>());
      case kBinInt:
        return push_number(cursor_.little_endian<int32_t>());
      case kLong1:
        return push_long();
      case kInt:
        return push_number(line());
      case kShortBinString:
      case kShortBinBytes:
        return push_bytes(cursor_.little_endian<uint8_t>());
      case kBinString:
      case kBinBytes:
        return push_bytes(cursor_.little_endian<uint32_t>());
      case kBinBytes8:
      case kByteArray8:
        return push_bytes(cursor_.little_endian<uint64_t>());
      case kEmptyList:
      case kEmptyTuple:
        return push_sequence(stack_.size());
      case kTuple1:
      case kTuple2:
      case kTuple3:
        return push_sequence(below(static_cast<size_t>(opcode - kTuple1) + 1));
      case kList:
      case kTuple:
        return push_marked();
      case kAppend:
        return append(below(1));
      case kAppends:
        return append_marked();
      default:
        return memorise(opcode);
    }
  }

  void memorise(uint8_t opcode) {
    switch (opcode) {
      case kPut:
        return put(static_cast<uint64_t>(line()));
      case kBinPut:
        return put(cursor_.little_endian<uint8_t>());
      case kLongBinPut:
        return put(cursor_.little_endian<uint32_t>());
      case kMemoize:
        return put(memo_.size());
      case kGet:
        return get(static_cast<uint64_t>(line()));
      case kBinGet:
        return get(cursor_.little_endian<uint8_t>());
      case kLongBinGet:
        return get(cursor_.little_endian<uint32_t>());
      default:
        fail_data(
            "its pickle opcode 0x{:02x} is not one of lists, bytes and booleans; save the set as "
            "(list of bytes, list of bool) with protocol 3 or later",
            opcode);
    }
  }

  Item pop() {
    if (stack_.empty()) fail_data("its pickle takes from an empty stack");
    const Item item = stack_.back();
    stack_.pop_back();
    return item;
  }

  // Where the topmost `count` items start.
  size_t below(size_t count) const {
    if (stack_.size() < count) fail_data("its pickle takes from an empty stack");
    return stack_.size() - count;
  }

  size_t topmost_mark() const {
    size_t at = stack_.size();
    while (at > 0 && stack_[at - 1].kind != Item::Kind::mark) --at;
    if (at == 0) fail_data("its pickle ends a list that it did not begin");
    return at;
  }

  void push_number(int64_t number) { stack_.push_back({Item::Kind::number, number, {}}); }
  void push_bytes(uint64_t size) { stack_.push_back({Item::Kind::bytes, 0, cursor_.take(size)}); }

  void push_long() {
    const auto digits = cursor_.take(cursor_.little_endian<uint8_t>());
    if (digits.size() > 1) fail_data("it has a large number where a boolean belongs");
    push_number(digits.empty() ? 0 : static_cast<int8_t>(digits.front()));
  }

  void push_sequence(size_t first) {
    sequences_.emplace_back(stack_.begin() + static_cast<ptrdiff_t>(first), stack_.end());
    stack_.resize(first);
    stack_.push_back({Item::Kind::sequence, static_cast<int64_t>(sequences_.size()) - 1, {}});
  }

  void push_marked() {
    const size_t first = topmost_mark();
    push_sequence(first);
    stack_.erase(stack_.begin() + static_cast<ptrdiff_t>(first) - 1);
  }

  void append(size_t first) {
    if (first == 0) fail_data("its pickle adds to a list that is not there");
    Sequence& list = sequences_[index_of(stack_[first - 1])];
    list.insert(list.end(), stack_.begin() + static_cast<ptrdiff_t>(first), stack_.end());
    stack_.resize(first);
  }

  void append_marked() {
    const size_t first = topmost_mark();
    stack_.erase(stack_.begin() + static_cast<ptrdiff_t>(first) - 1);
    append(first - 1);
  }

  void put(uint64_t key) { memo_[key] = stack_.empty() ? pop() : stack_.back(); }

  void get(uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) fail_data("its pickle recalls object {} before storing it", key);
    stack_.push_back(found->second);
  }

  // A decimal number up to the end of the line.
  int64_t line() {
    const std::string_view rest = as_text(cursor_.rest());
    const std::string_view text = rest.substr(0, rest.find('\n'));
    int64_t number = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (status != std::errc() || end != text.data() + text.size() || number < 0) {
      fail_data("its pickle has text where a number belongs");
    }
    cursor_.take(text.size());
    cursor_.take(1);
    return number;
  }

  static size_t index_of(const Item& item) {
    if (item.kind != Item::Kind::sequence) fail_data("it has something else where a list belongs");
    return static_cast<size_t>(item.number);
  }

  const Sequence& sequence(const Item& item) const { return sequences_[index_of(item)]; }

  ByteCursor cursor_;
  uint64_t size_;
  uint64_t offset_ = 0;
  Sequence stack_;
  std::vector<Sequence> sequences_;
  std::unordered_map<uint64_t, Item> memo_;
};

void put_length(std::string& text, uint32_t length) {
  text.append(reinterpret_cast<const char*>(&length), sizeof(length));
}

}  // namespace

FacePairs parse_face_pairs(std::span<const std::byte> bytes, std::string_view file) {
  Machine machine(bytes);
  FacePairs pairs;
  try {
    const auto [images, same] = machine.run();
    if (images->size() != 2 * same->size() || same->empty()) {
      fail_data("it has {} images and {} answers where two images belong to each", images->size(),
                same->size());
    }
    for (const Item& image : *images) {
      if (image.kind != Item::Kind::bytes) fail_data("it has an image that is not bytes");
      pairs.images.push_back(image.bytes);
    }
    for (const Item& answer : *same) {
      if (answer.kind != Item::Kind::number || answer.number < 0 || answer.number > 1) {
        fail_data("it has an answer that is not a boolean");
      }
      pairs.same.push_back(answer.number == 1);
    }
  } catch (const BadData& error) {
    fail_input("Byte {} of '{}' is not of a verification set: {}.", machine.offset(), file,
               error.what());
  }
  return pairs;
}

std::string encode_face_pairs(const FacePairs& pairs) {
  std::string text = {static_cast<char>(kProto), 3, kEmptyList, kMark};
  for (const std::span<const std::byte> image : pairs.images) {
    if (image.size() > std::numeric_limits<uint32_t>::max()) {
      fail_input("An image of {} bytes is too large for a verification set.", image.size());
    }
    text += static_cast<char>(kBinBytes);
    put_length(text, static_cast<uint32_t>(image.size()));
    text += as_text(image);
  }
  text += {static_cast<char>(kAppends), static_cast<char>(kEmptyList), static_cast<char>(kMark)};
  for (const bool same : pairs.same) text += static_cast<char>(same ? kNewTrue : kNewFalse);
  text += {static_cast<char>(kAppends), static_cast<char>(kTuple2), static_cast<char>(kStop)};
  return text;
}

}  // namespace millrace
