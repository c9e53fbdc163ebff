// PyTorch's files without PyTorch: archives and pickles put together by Python, most of them
// hostile. What PyTorch itself writes is held against it in tests/references/weights.py.
#include "data/weights/torch_file.h"

#include <gmock/gmock.h>

#include "data/weights/weights_file.h"
#include "support.h"

namespace millrace::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Writes archives as torch.save does, of objects that Python can pickle without PyTorch.
constexpr const char* kWriter = R"(
import collections, io, pickle, struct, sys, types, zipfile

torch = types.ModuleType('torch'); utils = types.ModuleType('torch._utils')
class FloatStorage: pass
class HalfStorage: pass
class QInt8Storage: pass
for kind in (FloatStorage, HalfStorage, QInt8Storage):
    kind.__module__ = 'torch'; setattr(torch, kind.__name__, kind)
def _rebuild_tensor_v2(*arguments): raise RuntimeError('nothing may be called')
_rebuild_tensor_v2.__module__ = 'torch._utils'
utils._rebuild_tensor_v2 = _rebuild_tensor_v2
sys.modules['torch'] = torch; sys.modules['torch._utils'] = utils

class Storage:
    def __init__(self, kind, key, count): self.id = ('storage', kind, key, 'cpu', count)
class Tensor:
    def __init__(self, storage, offset, size, stride): self.arguments = (storage, offset, size, stride, False, None)
    def __reduce__(self): return (_rebuild_tensor_v2, self.arguments)
class Pickler(pickle.Pickler):
    def persistent_id(self, value): return value.id if isinstance(value, Storage) else None

def save(name, value, storages, method=zipfile.ZIP_STORED, extra={}):
    text = io.BytesIO(); Pickler(text, protocol=2).dump(value)
    with zipfile.ZipFile(name, 'w', method) as file:
        file.writestr('archive/data.pkl', text.getvalue())
        for key, data in storages.items(): file.writestr(f'archive/data/{key}', data)
        for key, data in extra.items(): file.writestr(f'archive/{key}', data)
    return name

floats = struct.pack('<6f', 0, 1, 2, 3, 4, 5)
whole = Storage(FloatStorage, '0', 6)
plain = Tensor(whole, 0, (2, 3), (3, 1))
)";

class TorchFileTest : public DirectoryTest {
 protected:
  void write(const std::string& script) const { python(kWriter + script); }
  std::string error_for(const std::string& script) const {
    write(script);
    return input_error_of([&] { WeightsFile(directory_ / "x.pth", true); });
  }
  static std::vector<float> values_of(const WeightsFile& file, std::string_view name) {
    const WeightTensor* tensor = file.find(name);
    if (tensor == nullptr) return {};
    std::vector<float> values(static_cast<size_t>(tensor->elements()));
    read_values(*tensor, values);
    return values;
  }
};

TEST_F(TorchFileTest, CentresOfSeveralProcessesFollowEachOther) {
  write(R"(
for name, number in [('checkpoint_gpu_0.pt', 0), ('checkpoint_gpu_1.pt', 1), ('alone.pt', 1)]:
    save(name, {'epoch': 1, 'state_dict_backbone': {'fc.weight': plain},
                'state_dict_softmax_partial_fc': {'weight': Tensor(whole, 2 * number, (number + 1, 2), (2, 1))}},
         {'0': floats})
)");
  for (const char* name : {"checkpoint_gpu_0.pt", "checkpoint_gpu_1.pt"}) {
    const WeightsFile file(directory_ / name);
    ASSERT_NE(file.find("head.centres"), nullptr);
    EXPECT_EQ(file.find("head.centres")->shape, (std::vector<int64_t>{3, 2}));
    EXPECT_EQ(values_of(file, "head.centres"), (std::vector<float>{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(values_of(file, "fc.weight"), (std::vector<float>{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(file.tensors().size(), 2u);
  }
  const WeightsFile alone(directory_ / "alone.pt");
  EXPECT_EQ(values_of(alone, "head.centres"), (std::vector<float>{2, 3, 4, 5}));
}

TEST_F(TorchFileTest, ViewsAreReadInTheirOwnOrder) {
  write(R"(
save('x.pth', {'plain': plain, 'turned': Tensor(whole, 0, (3, 2), (1, 3)),
               'tail': Tensor(whole, 4, (2,), (1,)), 'spread': Tensor(whole, 2, (2, 2), (0, 2)),
               'number': Tensor(whole, 5, (), ()), 'none': Tensor(whole, 6, (0, 4), (4, 1))},
     {'0': floats})
)");
  const WeightsFile file(directory_ / "x.pth");
  EXPECT_THAT(values_of(file, "plain"), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(values_of(file, "turned"), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(values_of(file, "tail"), ElementsAre(4, 5));
  EXPECT_THAT(values_of(file, "spread"), ElementsAre(2, 4, 2, 4));
  EXPECT_THAT(values_of(file, "number"), ElementsAre(5));
  EXPECT_THAT(values_of(file, "none"), ElementsAre());
  std::vector<float> row(2);
  read_rows(*file.find("turned"), 2, 1, row);
  EXPECT_THAT(row, ElementsAre(2, 5));
}

TEST_F(TorchFileTest, FindsTheWeightsAmongOtherThings) {
  for (const char* value :
       {"{'state_dict': {'w': plain}, 'epoch': 3, 'loss': plain}", "{'model': {'module.w': plain}}",
        "{'a': 1, 'mine': {'w': plain}}",
        "{'checkpoint': {'model': {'_orig_mod.module.w': plain}}}",
        "collections.OrderedDict(w=plain)", "{'w': plain, 'step': 3, 'meta': {'x': plain}}"}) {
    write(fmt::format("save('x.pth', {}, {{'0': floats}})", value));
    const WeightsFile file(directory_ / "x.pth");
    ASSERT_EQ(file.tensors().size(), 1u) << value;
    EXPECT_EQ(file.tensors()[0].name, "w") << value;
  }
}

TEST_F(TorchFileTest, WhatCannotBeMeantIsRefusedInOneSentence) {
  const auto saved = [&](const std::string& value, const std::string& storages = "{'0': floats}") {
    return error_for(fmt::format("save('x.pth', {}, {})", value, storages));
  };
  EXPECT_THAT(saved("{'epoch': 3}"), HasSubstr("no state dictionary and no module"));
  EXPECT_THAT(saved("[plain]"), HasSubstr("no state dictionary"));
  EXPECT_THAT(saved("{'a': {'w': plain}, 'b': {'w': plain}}"), HasSubstr("weights in 'a', 'b'"));
  EXPECT_THAT(saved("{'w': plain}", "{}"), HasSubstr("the numbers of its tensor 'w' are missing"));
  EXPECT_THAT(saved("{'w': plain}", "{'0': floats[:20]}"), HasSubstr("reaches beyond"));
  EXPECT_THAT(saved("{'w': Tensor(whole, 1, (2, 3), (3, 1))}"), HasSubstr("reaches beyond"));
  EXPECT_THAT(saved("{'w': Tensor(whole, -1, (2, 3), (3, 1))}"), HasSubstr("reaches beyond"));
  EXPECT_THAT(saved("{'w': Tensor(whole, 0, (2, 3), (-3, 1))}"), HasSubstr("reaches beyond"));
  EXPECT_THAT(saved("{'w': Tensor(whole, 0, (2, 3), (3,))}"), HasSubstr("reaches beyond"));
  EXPECT_THAT(saved("{'w': Tensor(whole, 0, (-1,), (1,))}"), HasSubstr("reaches beyond"));
  EXPECT_THAT(saved("{'w': Tensor(whole, 0, (1 << 60, 1 << 60), (0, 0))}"),
              HasSubstr("reaches beyond"));
  EXPECT_THAT(saved("{'w': Tensor(whole, 0, (2, 2), (1 << 62, 1 << 62))}"),
              HasSubstr("reaches beyond"));
  EXPECT_THAT(saved("{'w': Tensor(whole, 0, ('a',), (1,))}"), HasSubstr("else than numbers"));
  EXPECT_THAT(saved("{'w': Tensor(7, 0, (1,), (1,))}"), HasSubstr("else than a storage"));
  EXPECT_THAT(saved("{'w': Tensor(Storage(QInt8Storage, '0', 6), 0, (6,), (1,))}"),
              HasSubstr("type QInt8Storage, which cannot be read"));
  EXPECT_THAT(error_for("save('x.pth', {'w': plain}, {'0': floats}, zipfile.ZIP_DEFLATED)"),
              HasSubstr("compressed; save it again with torch.save"));
  EXPECT_THAT(error_for("save('x.pth', {'w': plain}, {'0': floats}, extra={'byteorder': 'big'})"),
              HasSubstr("big-endian"));
  EXPECT_THAT(error_for("zipfile.ZipFile('x.pth', 'w').writestr('a/readme', 'x')"),
              HasSubstr("without data.pkl"));
  EXPECT_THAT(error_for("open('x.pth', 'wb').write(pickle.dumps({'a': 1}, protocol=2))"),
              HasSubstr("a pickle, but not one of torch.save's"));
  EXPECT_THAT(error_for(R"(
data = bytearray(open(save('x.pth', {'w': plain}, {'0': floats}), 'rb').read())
data[data.index(floats) + 3] ^= 1
open('x.pth', 'wb').write(data))"),
              HasSubstr("does not match its checksum"));
  EXPECT_THAT(error_for(R"(
data = open(save('x.pth', {'w': plain}, {'0': floats}), 'rb').read()
open('x.pth', 'wb').write(data[:-30]))"),
              HasSubstr("cut off"));
}

TEST_F(TorchFileTest, NothingIsExecuted) {
  EXPECT_THAT(error_for(R"(
import os
class Evil:
    def __reduce__(self): return (os.mkdir, ('made',))
save('x.pth', {'state_dict': Evil(), 'w': Evil()}, {'0': floats}))"),
              HasSubstr("no state dictionary"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "made"));
}

TEST_F(TorchFileTest, PartsThatReferToThemselvesEnd) {
  EXPECT_THAT(error_for(R"(
value = {}
value['model'] = value
save('x.pth', value, {}))"),
              HasSubstr("nests too deep"));
  EXPECT_THAT(error_for(R"(
value = {}
for i in range(60): value = {'model': value, 'net': value}
save('x.pth', value, {}))"),
              HasSubstr("too often"));
}

TEST_F(TorchFileTest, AnIndexNamesSeveralFiles) {
  write(R"(
import json
save('a.bin', {'x': plain}, {'0': floats}); save('b.bin', {'y': plain}, {'0': floats})
json.dump({'weight_map': {'x': 'a.bin', 'y': 'b.bin'}}, open('model.bin.index.json', 'w'))
json.dump({'weight_map': {'x': 'b.bin'}}, open('wrong.json', 'w'))
json.dump({'weight_map': {'x': '../a.bin'}}, open('outside.json', 'w'))
json.dump({'weight_map': {'x': 'wrong.json'}}, open('twice.json', 'w'))
json.dump({'a': 1}, open('other.json', 'w'))
)");
  for (const auto& path : {directory_ / "model.bin.index.json", directory_}) {
    const WeightsFile file(path);
    EXPECT_EQ(file.tensors().size(), 2u);
    EXPECT_NE(file.find("x"), nullptr);
    EXPECT_NE(file.find("y"), nullptr);
  }
  const auto error = [&](const char* name) {
    return input_error_of([&] { WeightsFile(directory_ / name); });
  };
  EXPECT_THAT(error("wrong.json"), HasSubstr("b.bin' has no tensor 'x'"));
  EXPECT_THAT(error("outside.json"), HasSubstr("no file beside itself"));
  EXPECT_THAT(error("twice.json"), HasSubstr("an index where weights belong"));
  EXPECT_THAT(error("other.json"), HasSubstr("no weight_map"));
}

TEST_F(TorchFileTest, OtherThingsPeopleHaveAreNamed) {
  const auto error = [&](std::string_view text) {
    write_text(directory_ / "x.pth", text);
    return input_error_of([&] { WeightsFile(directory_ / "x.pth"); });
  };
  EXPECT_THAT(error(""), HasSubstr("empty"));
  EXPECT_THAT(error("version https://git-lfs.github.com/spec/v1\n"), HasSubstr("Git LFS"));
  EXPECT_THAT(error("<!doctype html>"), HasSubstr("page of the web"));
  std::string tar(300, '\0');
  tar.replace(257, 5, "ustar");
  EXPECT_THAT(error(tar), HasSubstr("tar archive"));
  EXPECT_THAT(error("hello, world"), HasSubstr("no safetensors file"));
}

}  // namespace
}  // namespace millrace::data
