#include <gmock/gmock.h>

#include <cstring>

#include "data/formats/ofrecord.h"
#include "data/formats/recordio.h"
#include "format_support.h"

namespace millrace::data {
namespace {

using ::testing::HasSubstr;
using RecordFormatsTest = FormatsTest;

std::string magic_payload() { return std::string("ab\x0a\x23\xd7\xce", 6); }

TEST_F(RecordFormatsTest, PythonReadsOurOfrecord) {
  std::vector<Sample> samples;
  samples.push_back(encoded_sample("image zero", 5));
  samples.push_back(encoded_sample(std::string(300, 'x'), 1000));
  const auto writer =
      create_writer(at("ofrecord", "set"), {.split = Split::train, .part_bytes = 64});
  for (const Sample& sample : samples) writer->add(sample);
  writer->finish();
  EXPECT_EQ(python(R"(
import os, struct
def varint(b, i):
    n = s = 0
    while True:
        n |= (b[i] & 127) << s; s += 7; i += 1
        if b[i - 1] < 128: return n, i
def fields(b):
    i = 0
    while i < len(b):
        tag, i = varint(b, i); assert tag & 7 == 2
        n, i = varint(b, i); yield tag >> 3, b[i:i + n]; i += n
for name in sorted(os.listdir('set')):
    b = open('set/' + name, 'rb').read()
    while b:
        n, = struct.unpack('<q', b[:8]); message, b = b[8:8 + n], b[8 + n:]
        for _, entry in fields(message):
            e = dict(fields(entry)); (kind, values), = fields(e[2]); (_, value), = fields(values)
            if kind == 4: value, _ = varint(value, 0)
            print(name, e[1].decode(), kind, value if kind == 4 else (len(value), value[:5]))
)"),
            "part-00000 encoded 1 (10, b'image')\npart-00000 class/label 4 5\n"
            "part-00001 encoded 1 (300, b'xxxxx')\npart-00001 class/label 4 1000\n");
}

TEST_F(RecordFormatsTest, WeReadPythonsOfrecord) {
  python(R"(
import os, struct
def varint(n):
    out = b''
    while n > 127: out += bytes([n & 127 | 128]); n >>= 7
    return out + bytes([n])
def field(number, body): return varint(number << 3 | 2) + varint(len(body)) + body
def feature(key, kind, value): return field(1, field(1, key) + field(2, field(kind, value)))
os.mkdir('set')
def record(image, label):
    m = (feature(b'format', 1, field(1, b'JPEG')) + feature(b'object/bbox', 2, field(1, b'\0' * 8))
         + feature(b'class/label', *label) + feature(b'encoded', 1, field(1, image))
         + feature(b'scores', 3, b'\x09' + b'\0' * 8))
    return struct.pack('<q', len(m)) + m
open('set/part-00000', 'wb').write(record(b'first', (4, field(1, varint(7)))))
open('set/part-00001', 'wb').write(record(b'second', (5, b'\x08' + varint(300)))
                                   + record(b'third', (4, field(1, varint(2**64 - 3) + varint(4)))))
open('set/README', 'wb').write(b'no part')
)");
  const auto source = open_source(at("ofrecord", "set"), Split::train);
  ASSERT_EQ(source->count(), 3u);
  EXPECT_EQ(text_of(source->read(0)), "first");
  EXPECT_EQ(source->read(0).label, 7);
  EXPECT_EQ(text_of(source->read(1)), "second");
  EXPECT_EQ(source->read(1).label, 300);
  EXPECT_EQ(source->read(2).label, -3);
  EXPECT_EQ(source->place(2).record, 1u);
  EXPECT_GT(source->place(2).offset, 0u);
  EXPECT_THAT(source->place(2).file, HasSubstr("part-00001"));
}

TEST_F(RecordFormatsTest, DamagedOfrecordsAreOneBadRecordAtTheRightPlace) {
  std::vector<Sample> samples;
  for (int i = 0; i < 3; ++i) samples.push_back(encoded_sample("12345678", i));
  write(at("ofrecord", "set"), samples);
  const auto whole = open_source(at("ofrecord", "set"), Split::train);
  const uint64_t second = whole->place(1).offset;
  const std::string good = read_text(directory_ / "set/part-00000");

  overwrite("set/part-00000", [&](std::string& bytes) { bytes.resize(bytes.size() - 1); });
  auto source = open_source(at("ofrecord", "set"), Split::train);
  ASSERT_EQ(source->count(), 3u);
  EXPECT_EQ(source->read(1).label, 1);
  EXPECT_THAT(input_error_of([&] { source->read(2); }), HasSubstr("claims"));

  overwrite("set/part-00000", [&](std::string& bytes) {
    bytes = good;
    bytes[second + 7] = '\x7f';
  });
  source = open_source(at("ofrecord", "set"), Split::train);
  ASSERT_EQ(source->count(), 2u);
  EXPECT_THAT(input_error_of([&] { source->read(1); }), HasSubstr("claims"));
  EXPECT_EQ(source->place(1).offset, second);

  overwrite("set/part-00000", [&](std::string& bytes) {
    bytes = good;
    bytes.replace(bytes.find("encoded"), 7, "encodeX");
  });
  source = open_source(at("ofrecord", "set"), Split::train);
  EXPECT_THAT(input_error_of([&] { source->read(0); }), HasSubstr("'encoded'"));
}

TEST_F(RecordFormatsTest, PythonReadsOurRecordio) {
  std::vector<Sample> samples;
  samples.push_back(encoded_sample("plain", 3));
  samples.push_back(encoded_sample(magic_payload() + magic_payload() + "tail", 4));
  samples.push_back(encoded_sample(std::string("\x0a\x23\xd7\xce", 4), 5));
  samples.push_back(encoded_sample("several", 8));
  samples.back().labels = {8, 1.5f};
  write(at("recordio", "a.rec"), samples);
  EXPECT_EQ(python(R"(
import struct
b = open('a.rec', 'rb').read()
magic = struct.pack('<I', 0xced7230a)
parts = 0
for line in open('a.idx'):
    key, i = map(int, line.rstrip('\n').split('\t'))
    payload = b''
    while True:
        assert b[i:i + 4] == magic
        frame, = struct.unpack('<I', b[i + 4:i + 8])
        flag, n = frame >> 29, frame & (1 << 29) - 1
        payload += (magic if flag > 1 else b'') + b[i + 8:i + 8 + n]
        i += 8 + (n + 3) // 4 * 4
        parts += flag > 0
        if flag in (0, 3): break
    flag, label, id1, id2 = struct.unpack('<IfQQ', payload[:24])
    labels = struct.unpack('<%df' % flag, payload[24:24 + 4 * flag])
    print(key, flag, label, id1, labels, payload[24 + 4 * flag:])
print(parts > 0, i == len(b))
)"),
            "0 0 3.0 0 () b'plain'\n"
            "1 0 4.0 1 () b'ab\\n#\\xd7\\xceab\\n#\\xd7\\xcetail'\n"
            "2 0 5.0 2 () b'\\n#\\xd7\\xce'\n"
            "3 2 8.0 3 (8.0, 1.5) b'several'\nTrue True\n");
  const auto source = open_source(at("recordio", "a.rec"), Split::train);
  ASSERT_EQ(source->count(), 4u);
  EXPECT_EQ(text_of(source->read(1)), magic_payload() + magic_payload() + "tail");
  EXPECT_EQ(text_of(source->read(2)), std::string("\x0a\x23\xd7\xce", 4));
  EXPECT_EQ(source->read(3).labels, (std::vector<float>{8, 1.5f}));
}

TEST_F(RecordFormatsTest, RecordioPartsJoinAtEveryAlignment) {
  for (size_t before = 0; before < 9; ++before) {
    for (size_t after = 0; after < 9; ++after) {
      const std::string payload = std::string(before, 'b') + magic_payload().substr(2) +
                                  magic_payload().substr(2) + std::string(after, 'a');
      const std::string framed = encode_recordio(std::as_bytes(std::span(payload)));
      ASSERT_EQ(framed.size() % 4, 0u);
      const auto read = read_recordio(std::as_bytes(std::span(framed)), 0);
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(read.bytes.data()), read.bytes.size()),
                payload);
      EXPECT_EQ(read.end, framed.size());
      for (size_t i = 4; i + 4 <= framed.size(); i += 4) {
        uint32_t frame = 0;
        if (std::memcmp(framed.data() + i, magic_payload().data() + 2, 4) != 0) continue;
        std::memcpy(&frame, framed.data() + i + 4, 4);
        EXPECT_GT(frame >> 29, 1u) << "a magic number inside a record starts a part";
      }
    }
  }
}

TEST_F(RecordFormatsTest, WeReadPythonsFaceRecordioWithItsHeaderRecords) {
  python(R"(
import struct
def pack(labels, image):
    return struct.pack('<IfQQ', len(labels), 0, 0, 0) + struct.pack('<%df' % len(labels), *labels) + image
def single(label, image): return struct.pack('<IfQQ', 0, label, 9, 0) + image
records = [pack((4, 6), b''), single(0, b'a0'), single(0, b'a1'), pack((1, 7.5), b'b0'),
           pack((1, 3), b''), pack((3, 4), b'')]
out, index = b'', ''
for key, p in enumerate(records):
    index += '%d\t%d\n' % (key, len(out))
    out += struct.pack('<II', 0xced7230a, len(p)) + p + b'\0' * (-len(p) % 4)
open('f.rec', 'wb').write(out); open('f.idx', 'w').write(index)
)");
  for (const bool with_index : {true, false}) {
    if (!with_index) std::filesystem::remove(directory_ / "f.idx");
    const auto source = open_source(at("recordio", "f.rec"), Split::train);
    ASSERT_EQ(source->count(), 3u);
    EXPECT_EQ(text_of(source->read(1)), "a1");
    EXPECT_EQ(source->read(1).label, 0);
    EXPECT_EQ(text_of(source->read(2)), "b0");
    EXPECT_EQ(source->read(2).label, 1);
    EXPECT_EQ(source->place(2).record, 3u);
  }
}

TEST_F(RecordFormatsTest, DamagedRecordioIsNamed) {
  std::vector<Sample> samples;
  for (int i = 0; i < 3; ++i) samples.push_back(encoded_sample("12345678", i));
  write(at("recordio", "a.rec"), samples);
  const std::string good = read_text(directory_ / "a.rec");
  overwrite("a.rec", [](std::string& bytes) { bytes[40] = 'X'; });
  auto source = open_source(at("recordio", "a.rec"), Split::train);
  EXPECT_EQ(source->place(1).offset, 40u);
  EXPECT_THAT(input_error_of([&] { source->read(1); }), HasSubstr("magic"));
  EXPECT_EQ(source->read(2).label, 2);
  overwrite("a.rec", [&](std::string& bytes) { bytes = good.substr(0, good.size() - 5); });
  source = open_source(at("recordio", "a.rec"), Split::train);
  EXPECT_THAT(input_error_of([&] { source->read(2); }), HasSubstr("claims"));
  overwrite("a.rec", [&](std::string& bytes) {
    bytes = good;
    const float label = 1.5f;
    std::memcpy(bytes.data() + 12, &label, 4);
  });
  source = open_source(at("recordio", "a.rec"), Split::train);
  EXPECT_THAT(input_error_of([&] { source->read(0); }), HasSubstr("1.5"));
  write_text(directory_ / "a.idx", "0\t0\n1 40\n");
  EXPECT_THAT(input_error_of([&] { open_source(at("recordio", "a.rec"), Split::train); }),
              HasSubstr("Line 2"));
}

}  // namespace
}  // namespace millrace::data
