#include "data/pickle/pickle.h"

#include <bit>
#include <charconv>
#include <string>
#include <unordered_map>

#include "data/formats/byte_cursor.h"
#include "data/pickle/opcodes.h"

namespace millrace::data {
namespace {

using namespace pickle_opcode;
using Kind = PickleValue::Kind;

constexpr size_t kMostValues = size_t{1} << 22;
constexpr uint8_t kNewestProtocol = 5;
constexpr PickleId kMarkId = kNoPickleValue;

class PickleMachine {
 public:
  explicit PickleMachine(std::span<const std::byte> bytes) : cursor_(bytes), size_(bytes.size()) {}

  uint64_t offset() const { return offset_; }

  Pickle run() {
    while (true) {
      offset_ = size_ - cursor_.rest().size();
      const auto opcode = cursor_.little_endian<uint8_t>();
      if (opcode == kStop) break;
      step(opcode);
      if (values_.size() > kMostValues || stack_.size() > kMostValues || held_ > kMostValues) {
        fail_data("it nests or lists too much at once");
      }
    }
    const PickleId root = pop();
    return {std::move(values_), root, size_ - cursor_.rest().size()};
  }

 private:
  void step(uint8_t opcode) {
    if (!scalar(opcode) && !container(opcode) && !memory(opcode) && !call(opcode)) {
      fail_data("its pickle opcode 0x{:02x} is unknown", opcode);
    }
  }

  bool scalar(uint8_t opcode) {
    switch (opcode) {
      case kNone:
        push({});
        return true;
      case kNewTrue:
      case kNewFalse:
        push({.kind = Kind::boolean, .integer = opcode == kNewTrue ? 1 : 0});
        return true;
      case kBinInt1:
        return push_integer(cursor_.little_endian<uint8_t>());
      case kBinInt2:
        return push_integer(cursor_.little_endian<uint16_t>());
      case kBinInt:
        return push_integer(cursor_.little_endian<int32_t>());
      case kLong1:
        return push_long(cursor_.little_endian<uint8_t>());
      case kLong4:
        return push_long(cursor_.little_endian<uint32_t>());
      case kInt:
      case kLong:
        return push_decimal();
      case kFloat: {
        const std::string_view text = line();
        double number = 0;
        const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
        if (status != std::errc() || end != text.data() + text.size()) fail_number();
        push({.kind = Kind::real, .real = number});
        return true;
      }
      case kBinFloat:
        push({.kind = Kind::real,
              .real = std::bit_cast<double>(__builtin_bswap64(cursor_.little_endian<uint64_t>()))});
        return true;
      case kString: {
        const std::string_view text = line();
        push_text(Kind::text, text.size() < 2 ? text : text.substr(1, text.size() - 2));
        return true;
      }
      case kUnicode:
        push_text(Kind::text, line());
        return true;
      case kShortBinUnicode:
        return push_counted(Kind::text, cursor_.little_endian<uint8_t>());
      case kBinUnicode:
        return push_counted(Kind::text, cursor_.little_endian<uint32_t>());
      case kBinUnicode8:
        return push_counted(Kind::text, cursor_.little_endian<uint64_t>());
      case kShortBinString:  // Python 2's strings may be either
      case kShortBinBytes:
        return push_counted(Kind::bytes, cursor_.little_endian<uint8_t>());
      case kBinString:
      case kBinBytes:
        return push_counted(Kind::bytes, cursor_.little_endian<uint32_t>());
      case kBinBytes8:
      case kByteArray8:
        return push_counted(Kind::bytes, cursor_.little_endian<uint64_t>());
      default:
        return false;
    }
  }

  bool container(uint8_t opcode) {
    switch (opcode) {
      case kMark:
        stack_.push_back(kMarkId);
        return true;
      case kEmptyList:
      case kEmptyTuple:
      case kEmptySet:
        return push_sequence(Kind::sequence, stack_.size());
      case kEmptyDictionary:
        return push_sequence(Kind::dictionary, stack_.size());
      case kTuple1:
      case kTuple2:
      case kTuple3:
        return push_sequence(Kind::sequence, below(static_cast<size_t>(opcode - kTuple1) + 1));
      case kList:
      case kTuple:
      case kFrozenSet:
        return push_sequence(Kind::sequence, take_mark());
      case kDictionary:
        return push_sequence(Kind::dictionary, take_mark());
      case kAppend:
        return append(below(1));
      case kSetItem:
        return append(below(2));
      case kAppends:
      case kAddItems:
      case kSetItems:
        return append(take_mark());
      default:
        return false;
    }
  }

  bool memory(uint8_t opcode) {
    switch (opcode) {
      case kProtocol:
        if (const auto version = cursor_.little_endian<uint8_t>(); version > kNewestProtocol) {
          fail_data("its pickle protocol {} is unknown", version);
        }
        return true;
      case kFrame:
        cursor_.take(8);
        return true;
      case kPop:
        if (!stack_.empty() && stack_.back() == kMarkId) {
          stack_.pop_back();
        } else {
          pop();
        }
        return true;
      case kPopMark:
        stack_.resize(take_mark());
        return true;
      case kDuplicate:
        stack_.push_back(top());
        return true;
      case kPut:
        return put(key());
      case kBinPut:
        return put(cursor_.little_endian<uint8_t>());
      case kLongBinPut:
        return put(cursor_.little_endian<uint32_t>());
      case kMemoize:
        return put(memo_.size());
      case kGet:
        return get(key());
      case kBinGet:
        return get(cursor_.little_endian<uint8_t>());
      case kLongBinGet:
        return get(cursor_.little_endian<uint32_t>());
      default:
        return false;
    }
  }

  bool call(uint8_t opcode) {
    switch (opcode) {
      case kGlobal:
        push_global();
        return true;
      case kStackGlobal: {
        const PickleId name = pop();
        const PickleId module = pop();
        if (!is_text(name) || !is_text(module)) fail_data("it names a global by no text");
        push({.kind = Kind::global, .text = values_[name].text, .module = values_[module].text});
        return true;
      }
      case kBinPersistent: {
        const PickleId arguments = pop();
        push({.kind = Kind::persistent, .arguments = arguments});
        return true;
      }
      case kReduce:
      case kNewObject: {
        const PickleId arguments = pop();
        return make(pop(), arguments);
      }
      case kNewObjectNamed: {
        pop();
        const PickleId arguments = pop();
        return make(pop(), arguments);
      }
      case kInstance:
      case kObject: {
        const size_t first = take_mark() + (opcode == kObject ? 1 : 0);
        if (first > stack_.size()) fail_data("it makes an object of no class");
        push_sequence(Kind::sequence, first);
        const PickleId arguments = pop();
        if (opcode == kInstance) push_global();
        return make(pop(), arguments);
      }
      case kBuild: {
        const PickleId state = pop();
        values_[top()].state = state;
        return true;
      }
      default:
        return false;
    }
  }

  // What a call would make: dictionaries are made, everything else is remembered.
  bool make(PickleId callable, PickleId arguments) {
    const PickleValue& called = values_[callable];
    const bool ordered = called.is_global("collections", "OrderedDict");
    if (!ordered && !called.is_global("collections", "defaultdict")) {
      push({.kind = Kind::object, .callable = callable, .arguments = arguments});
      return true;
    }
    PickleValue dictionary = {.kind = Kind::dictionary};
    // Python 2 gives the pairs at once.
    if (ordered && values_[arguments].items.size() == 1) {
      for (const PickleId pair : values_[values_[arguments].items[0]].items) {
        const std::vector<PickleId>& both = values_[pair].items;
        if (both.size() != 2) fail_data("it has a dictionary of other things than pairs");
        dictionary.items.insert(dictionary.items.end(), both.begin(), both.end());
      }
      held_ += dictionary.items.size();
    }
    push(std::move(dictionary));
    return true;
  }

  void push(PickleValue value) {
    values_.push_back(std::move(value));
    stack_.push_back(static_cast<PickleId>(values_.size() - 1));
  }

  bool push_integer(int64_t number) {
    push({.kind = Kind::integer, .integer = number});
    return true;
  }

  void push_text(Kind kind, std::string_view text) { push({.kind = kind, .text = text}); }

  bool push_counted(Kind kind, uint64_t size) {
    push_text(kind, as_text(cursor_.take(size)));
    return true;
  }

  bool push_long(uint64_t size) {
    const std::span<const std::byte> digits = cursor_.take(size);
    if (size > sizeof(int64_t)) {
      push_text(Kind::large, as_text(digits));
      return true;
    }
    int64_t number = 0;
    std::memcpy(&number, digits.data(), size);
    if (size > 0 && size < sizeof(int64_t)) {
      const auto unused = static_cast<int>(64 - 8 * size);
      number = static_cast<int64_t>(static_cast<uint64_t>(number) << unused) >> unused;
    }
    return push_integer(number);
  }

  // Booleans of protocol 0 are "00" and "01"; long integers end in L.
  bool push_decimal() {
    std::string_view text = line();
    if (text == "00" || text == "01") {
      push({.kind = Kind::boolean, .integer = text == "01"});
      return true;
    }
    if (text.ends_with('L')) text.remove_suffix(1);
    return push_integer(decimal(text));
  }

  void push_global() {
    const std::string_view module = line();
    push({.kind = Kind::global, .text = line(), .module = module});
  }

  bool push_sequence(Kind kind, size_t first) {
    PickleValue value = {.kind = kind};
    take_items(first, value);
    push(std::move(value));
    return true;
  }

  bool append(size_t first) {
    if (first == 0) fail_data("its pickle adds to a list that is not there");
    PickleValue list = std::move(values_[id_at(first - 1)]);
    const PickleId place = stack_[first - 1];
    take_items(first, list);
    values_[place] = std::move(list);
    return true;
  }

  void take_items(size_t first, PickleValue& to) {
    for (size_t i = first; i < stack_.size(); ++i) to.items.push_back(id_at(i));
    if (to.kind == Kind::dictionary && to.items.size() % 2 != 0) {
      fail_data("it has a dictionary with a key that has no value");
    }
    held_ += stack_.size() - first;
    stack_.resize(first);
  }

  PickleId id_at(size_t place) const {
    if (stack_[place] == kMarkId) fail_data("its pickle begins a list that it does not end");
    return stack_[place];
  }

  PickleId top() const {
    if (stack_.empty()) fail_data("its pickle takes from an empty stack");
    return id_at(stack_.size() - 1);
  }

  PickleId pop() {
    const PickleId id = top();
    stack_.pop_back();
    return id;
  }

  size_t below(size_t count) const {
    if (stack_.size() < count) fail_data("its pickle takes from an empty stack");
    return stack_.size() - count;
  }

  // Removes the topmost mark; what lay above it begins at the place that is returned.
  size_t take_mark() {
    size_t at = stack_.size();
    while (at > 0 && stack_[at - 1] != kMarkId) --at;
    if (at == 0) fail_data("its pickle ends a list that it did not begin");
    stack_.erase(stack_.begin() + static_cast<ptrdiff_t>(at) - 1);
    return at - 1;
  }

  bool put(uint64_t number) {
    memo_[number] = top();
    return true;
  }

  bool get(uint64_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) fail_data("its pickle recalls object {} before storing it", number);
    stack_.push_back(found->second);
    return true;
  }

  std::string_view line() {
    const std::string_view rest = as_text(cursor_.rest());
    const std::string_view text = rest.substr(0, rest.find('\n'));
    cursor_.take(text.size());
    cursor_.take(1);
    return text;
  }

  [[noreturn]] static void fail_number() {
    fail_data("its pickle has text where a number belongs");
  }

  static int64_t decimal(std::string_view text) {
    int64_t number = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (status != std::errc() || end != text.data() + text.size()) fail_number();
    return number;
  }

  uint64_t key() {
    const int64_t number = decimal(line());
    if (number < 0) fail_number();
    return static_cast<uint64_t>(number);
  }

  bool is_text(PickleId id) const {
    return values_[id].kind == Kind::text || values_[id].kind == Kind::bytes;
  }

  ByteCursor cursor_;
  uint64_t size_;
  uint64_t offset_ = 0;
  uint64_t held_ = 0;  // items of all containers
  std::vector<PickleId> stack_;
  std::vector<PickleValue> values_;
  std::unordered_map<uint64_t, PickleId> memo_;
};

}  // namespace

const std::vector<PickleId>& Pickle::elements(PickleId id) const {
  const PickleValue& value = (*this)[id];
  if (value.kind != Kind::sequence) fail_data("it has something else where a list belongs");
  return value.items;
}

std::optional<PickleId> Pickle::find(PickleId id, std::string_view key) const {
  const PickleValue& value = (*this)[id];
  if (value.kind != Kind::dictionary) return {};
  for (size_t i = 0; i + 1 < value.items.size(); i += 2) {
    const PickleValue& name = (*this)[value.items[i]];
    const bool is_text = name.kind == Kind::text || name.kind == Kind::bytes;
    if (is_text && name.text == key) return value.items[i + 1];
  }
  return {};
}

Pickle read_pickle(std::span<const std::byte> bytes) {
  PickleMachine machine(bytes);
  try {
    return machine.run();
  } catch (const BadData& error) {
    throw PickleFault(machine.offset(), error.what());
  }
}

}  // namespace millrace::data
