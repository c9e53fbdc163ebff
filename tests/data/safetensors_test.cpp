#include "data/safetensors.h"

#include <gmock/gmock.h>

#include <cstring>

#include "support.h"

namespace millrace::data {
namespace {

using ::testing::HasSubstr;

class SafetensorsTest : public DirectoryTest {
 protected:
  // A file with this header text and so many bytes of data.
  std::string error_of(const std::string& header, size_t data_size) const {
    const uint64_t length = header.size();
    std::string bytes(reinterpret_cast<const char*>(&length), 8);
    bytes += header + std::string(data_size, 'x');
    return error_of_bytes(bytes);
  }
  static std::string error_of_bytes(const std::string& bytes) {
    return input_error_of(
        [&] { parse_safetensors(std::as_bytes(std::span(bytes)), "weights.safetensors"); });
  }
};

TEST_F(SafetensorsTest, RoundTripKeepsEveryTypeShapeAndByte) {
  const std::vector<float> weights = {1.5f, -2.0f, 3.25f, 0.0f, 7.0f, -0.5f};
  const std::vector<uint16_t> halves = {1, 2, 3};
  const std::vector<int64_t> counter = {-7};
  const std::vector<int32_t> labels = {4, 5};
  const std::vector<uint8_t> pixels = {9, 8, 7};
  const std::vector<SafetensorsTensor> tensors = {
      {"pixels", "U8", {3}, pixels.data(), 3},
      {"layer.weight", "F32", {2, 3}, weights.data(), 24},
      {"half", "F16", {3, 1}, halves.data(), 6},
      {"brain", "BF16", {3}, halves.data(), 6},
      {"labels", "I32", {2}, labels.data(), 8},
      {"counter", "I64", {}, counter.data(), 8},
      {"empty", "F32", {0, 5}, nullptr, 0}};
  write_safetensors(directory_ / "a", tensors, {{"step", "12"}});
  const SafetensorsFile file(directory_ / "a");
  EXPECT_EQ(file.metadata().at("step"), "12");
  ASSERT_EQ(file.entries().size(), tensors.size());
  for (const SafetensorsTensor& tensor : tensors) {
    const SafetensorsEntry& entry = file.at(tensor.name);
    EXPECT_EQ(entry.dtype, tensor.dtype);
    EXPECT_EQ(entry.shape, tensor.shape);
    ASSERT_EQ(entry.data.size(), tensor.size);
    if (tensor.size == 0) continue;
    EXPECT_EQ(std::memcmp(entry.data.data(), tensor.data, tensor.size), 0);
    EXPECT_EQ(
        reinterpret_cast<uintptr_t>(entry.data.data()) % safetensors_element_size(entry.dtype), 0u);
  }
  EXPECT_EQ(file.find("nothing"), nullptr);
  EXPECT_THAT(input_error_of([&] { file.at("layer.weigth"); }), HasSubstr("'layer.weight'"));
}

TEST_F(SafetensorsTest, PythonReadsOurs) {
  const std::vector<float> weights = {1.5f, -2.0f};
  const std::vector<int64_t> step = {41};
  const std::vector<SafetensorsTensor> tensors = {{"w", "F32", {1, 2}, weights.data(), 8},
                                                  {"n", "I64", {}, step.data(), 8}};
  write_safetensors(directory_ / "a", tensors, {{"k", "v \"quoted\""}});
  EXPECT_EQ(python(R"(
import json, struct
b = open('a', 'rb').read()
n, = struct.unpack('<Q', b[:8])
h = json.loads(b[8:8 + n])
def tensor(name, code):
    s, e = h[name]['data_offsets']
    return struct.unpack('<' + code, b[8 + n:][s:e])
print(h['w']['dtype'], h['w']['shape'], tensor('w', '2f'))
print(h['n']['dtype'], h['n']['shape'], tensor('n', 'q'))
print(h['__metadata__'], n % 8, max(t['data_offsets'][1] for k, t in h.items() if k[0] != '_')
      == len(b) - 8 - n)
)"),
            "F32 [1, 2] (1.5, -2.0)\nI64 [] (41,)\n{'k': 'v \"quoted\"'} 0 True\n");
}

TEST_F(SafetensorsTest, WeReadPythons) {
  python(R"(
import json, struct
h = {'b': {'shape': [2], 'dtype': 'I32', 'data_offsets': [12, 20]},
     'a\u00e9': {'dtype': 'F32', 'shape': [3, 1], 'data_offsets': [0, 12]},
     '__metadata__': {'format': 'pt'}}
t = json.dumps(h).encode()
open('p', 'wb').write(struct.pack('<Q', len(t)) + t + struct.pack('<3f2i', 1, 2, 3.5, -4, 5))
)");
  const SafetensorsFile file(directory_ / "p");
  ASSERT_EQ(file.entries().size(), 2u);
  EXPECT_EQ(file.entries()[0].name, "aé");
  EXPECT_EQ(file.entries()[0].shape, (std::vector<int64_t>{3, 1}));
  std::array<float, 3> values = {};
  std::memcpy(values.data(), file.entries()[0].data.data(), 12);
  EXPECT_EQ(values, (std::array<float, 3>{1, 2, 3.5}));
  std::array<int32_t, 2> labels = {};
  std::memcpy(labels.data(), file.at("b").data.data(), 8);
  EXPECT_EQ(labels, (std::array<int32_t, 2>{-4, 5}));
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

TEST_F(SafetensorsTest, RefusesWhatIsWrongAndNamesIt) {
  EXPECT_EQ(error_of(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8), "");
  EXPECT_THAT(error_of_bytes("short"), HasSubstr("weights.safetensors"));
  EXPECT_THAT(error_of_bytes(std::string(8, '\xff') + "{}"), HasSubstr("claims"));
  EXPECT_THAT(error_of("{\"w\":", 0), HasSubstr("JSON"));
  EXPECT_THAT(error_of("[]", 0), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_of(R"({"w":{"a":{"b":{"c":[[1]]}}}})", 0), HasSubstr("deep"));
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"w":3})", "no dtype"},
      {R"({"w":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})", "'F31'"},
      {R"({"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "shape"},
      {R"({"w":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", "shape"},
      {R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "match"},
      {R"({"w":{"dtype":"F32","shape":[4611686018427387906],"data_offsets":[0,8]}})", "match"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "outside"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,12]}})", "outside"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "expected"},
      {R"({"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
       R"("w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "expected"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "twice"}};
  for (const auto& [header, words] : cases) {
    EXPECT_THAT(error_of(header, 8), ::testing::AllOf(HasSubstr(words), HasSubstr("'w'"),
                                                      HasSubstr("weights.safetensors")));
  }
  EXPECT_THAT(error_of(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8),
              HasSubstr("4 bytes of data after"));
  EXPECT_THAT(error_of(R"({"__metadata__":{"a":1}})", 0), HasSubstr("__metadata__"));
}

TEST_F(SafetensorsTest, WriterRefusesWrongSizesAndLeavesNothing) {
  const float value = 1;
  const std::vector<SafetensorsTensor> wrong = {{"w", "F32", {2}, &value, 4}};
  EXPECT_THAT(input_error_of([&] { write_safetensors(directory_ / "a", wrong, {}); }),
              HasSubstr("'w'"));
  const std::vector<SafetensorsTensor> twice = {{"w", "F32", {1}, &value, 4},
                                                {"w", "F32", {1}, &value, 4}};
  EXPECT_THAT(input_error_of([&] { write_safetensors(directory_ / "a", twice, {}); }),
              HasSubstr("taken"));
  {
    SafetensorsWriter writer(directory_ / "a", std::span(twice).first(1), {});
    writer.append(&value, 2);
    EXPECT_THAT(input_error_of([&] { writer.commit(); }), HasSubstr("2 bytes"));
    EXPECT_THAT(input_error_of([&] { writer.append(&value, 4); }), HasSubstr("2 bytes more"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

}  // namespace
}  // namespace millrace::data
