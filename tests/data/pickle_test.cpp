// What Python's pickle writes, read as data.
#include "data/pickle/pickle.h"

#include <gmock/gmock.h>

#include "base/json.h"
#include "support.h"

namespace millrace::data {
namespace {

using ::testing::HasSubstr;
using Kind = PickleValue::Kind;

// Values that JSON has as JSON; calls as {"call": …, "of": …}.
Json as_json(const Pickle& pickle, PickleId id) {
  const PickleValue& value = pickle[id];
  switch (value.kind) {
    case Kind::none:
      return nullptr;
    case Kind::boolean:
      return value.integer == 1;
    case Kind::integer:
      return value.integer;
    case Kind::large:
      return fmt::format("large of {} bytes", value.text.size());
    case Kind::real:
      return value.real;
    case Kind::text:
    case Kind::bytes:
      return std::string(value.text);
    case Kind::global:
      return fmt::format("{}.{}", value.module, value.text);
    case Kind::sequence: {
      Json list = Json::array();
      for (const PickleId item : value.items) list.push_back(as_json(pickle, item));
      return list;
    }
    case Kind::dictionary: {
      Json object = Json::object();
      for (size_t i = 0; i < value.items.size(); i += 2) {
        object[as_json(pickle, value.items[i]).get<std::string>()] =
            as_json(pickle, value.items[i + 1]);
      }
      return object;
    }
    case Kind::object:
      return {{"call", as_json(pickle, value.callable)}, {"of", as_json(pickle, value.arguments)}};
    case Kind::persistent:
      return {{"persistent", as_json(pickle, value.arguments)}};
  }
  return "unknown";
}

class PickleTest : public DirectoryTest {
 protected:
  Json json_of(const std::filesystem::path& file) const {
    const std::string bytes = read_text(directory_ / file);
    const Pickle pickle = read_pickle(std::as_bytes(std::span(bytes)));
    EXPECT_EQ(pickle.size(), bytes.size());
    return as_json(pickle, pickle.root());
  }
  static std::string fault_of(const std::string& bytes) {
    return input_error_of([&] { read_pickle(std::as_bytes(std::span(bytes))); });
  }
};

TEST_F(PickleTest, ReadsEveryProtocolAsPythonDoes) {
  const std::string expected = python(R"(
import pickle, json, collections
shared = [1, 2]
value = {'none': None, 'yes': True, 'no': False, 'small': 7, 'word': 300, 'negative': -5,
         'four': -100000, 'eight': 1 << 40, 'minus eight': -(1 << 40), 'real': 0.1, 'third': -1e300,
         'text': 'abc', 'long': 'x' * 300, 'empty': [[], {}, [[]]], 'list': list(range(300)),
         'pairs': [[1, 2], [3, 4, 5], [6]], 'shared': [shared, shared], 'nested': {'a': {'b': 'c'}}}
for protocol in range(6):
    pickle.dump(value, open(f'{protocol}.pickle', 'wb'), protocol=protocol)
    ordered = collections.OrderedDict([('first', (1,)), ('second', (2, 3))])
    pickle.dump(ordered, open(f'ordered{protocol}.pickle', 'wb'), protocol=protocol)
print(json.dumps(value))
)");
  for (int protocol = 0; protocol <= 5; ++protocol) {
    EXPECT_EQ(json_of(fmt::format("{}.pickle", protocol)), Json::parse(expected)) << protocol;
    EXPECT_EQ(json_of(fmt::format("ordered{}.pickle", protocol)),
              Json::parse(R"({"first": [1], "second": [2, 3]})"))
        << protocol;
  }
}

TEST_F(PickleTest, CallsAreRememberedAndNotMade) {
  python(R"(
import os, pickle
class Evil:
    def __reduce__(self): return (os.mkdir, ('made',))
for protocol in range(6):
    pickle.dump([Evil(), 1], open(f'{protocol}.pickle', 'wb'), protocol=protocol)
)");
  for (int protocol = 0; protocol <= 5; ++protocol) {
    EXPECT_EQ(json_of(fmt::format("{}.pickle", protocol)),
              Json::parse(R"([{"call": "posix.mkdir", "of": ["made"]}, 1])"))
        << protocol;
  }
  EXPECT_FALSE(std::filesystem::exists(directory_ / "made"));
}

TEST_F(PickleTest, InstancesKeepTheirAttributes) {
  python(R"(
import pickle
class Point:
    pass
point = Point()
point.x = 3
for protocol in range(6):
    pickle.dump(point, open(f'{protocol}.pickle', 'wb'), protocol=protocol)
)");
  for (int protocol = 0; protocol <= 5; ++protocol) {
    const std::string bytes = read_text(directory_ / fmt::format("{}.pickle", protocol));
    const Pickle pickle = read_pickle(std::as_bytes(std::span(bytes)));
    const PickleValue& point = pickle[pickle.root()];
    ASSERT_EQ(point.kind, Kind::object) << protocol;
    const auto x = pickle.find(point.state, "x");
    ASSERT_TRUE(x) << protocol;
    EXPECT_EQ(pickle[*x].integer, 3);
  }
}

TEST_F(PickleTest, FaultsAreClauses) {
  EXPECT_THAT(fault_of("."), HasSubstr("empty stack"));
  EXPECT_THAT(fault_of("(."), HasSubstr("does not end"));
  EXPECT_THAT(fault_of("(K\1d."), HasSubstr("key that has no value"));
  EXPECT_THAT(fault_of("K\1K\1\x93."), HasSubstr("by no text"));
  EXPECT_THAT(fault_of("(o."), HasSubstr("of no class"));
  EXPECT_THAT(fault_of("Fx\n."), HasSubstr("where a number belongs"));
  EXPECT_THAT(fault_of("p-1\n."), HasSubstr("where a number belongs"));
  EXPECT_THAT(fault_of("P1\n."), HasSubstr("opcode 0x50"));
  EXPECT_THAT(fault_of("cos"), HasSubstr("1 bytes are needed where 0 are left"));
  // References multiply what a container holds without more bytes than they take.
  EXPECT_THAT(fault_of(std::string((size_t{1} << 22) + 1, '(')), HasSubstr("too much at once"));
}

}  // namespace
}  // namespace millrace::data
