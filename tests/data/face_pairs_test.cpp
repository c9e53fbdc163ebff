#include "data/formats/face_pairs.h"

#include <gmock/gmock.h>

#include "data/formats/byte_cursor.h"
#include "support.h"

namespace millrace::data {
namespace {

using ::testing::HasSubstr;

class FacePairsTest : public DirectoryTest {
 protected:
  static std::string error_for(const std::string& bytes) {
    return input_error_of([&] { parse_face_pairs(std::as_bytes(std::span(bytes)), "pairs.bin"); });
  }

  // Writes 2500 pairs by Python's pickle and reads them back.
  void check_python(const std::string& dump) const {
    python(
        "import pickle\n"
        "images = [bytes([i % 251]) * (i % 700) for i in range(5000)]\n"
        "images[7] = images[6]\n"
        "same = [i % 3 == 0 for i in range(2500)]\n"
        "file = open('pairs.bin', 'wb')\n" +
        dump);
    const FacePairsFile file(directory_ / "pairs.bin");
    const FacePairs& pairs = file.pairs();
    ASSERT_EQ(pairs.count(), 2500u);
    ASSERT_EQ(pairs.images.size(), 5000u);
    for (size_t i = 0; i < pairs.images.size(); ++i) {
      const size_t image = i == 7 ? 6 : i;
      const std::string expected(image % 700, static_cast<char>(image % 251));
      ASSERT_EQ(as_text(pairs.images[i]), expected) << i;
    }
    for (size_t i = 0; i < pairs.count(); ++i) ASSERT_EQ(pairs.same[i], i % 3 == 0) << i;
  }
};

TEST_F(FacePairsTest, ReadsWhatPythonWrites) {
  for (const char* protocol : {"3", "4", "5"}) {
    check_python(fmt::format("pickle.dump((images, same), file, protocol={})", protocol));
  }
  check_python("pickle.dump((images, [int(i) for i in same]), file, protocol=4)");
  check_python("pickle.dump([[bytearray(i) for i in images], same], file, protocol=5)");
}

TEST_F(FacePairsTest, ReadsArraysOfNumpy) {
  const std::string arrays =
      "import numpy\n"
      "arrays = [numpy.frombuffer(i, numpy.uint8).reshape(-1, 1) for i in images]\n";
  for (const char* protocol : {"3", "4", "5"}) {
    for (const char* same : {"same", "numpy.array(same)", "[numpy.bool_(i) for i in same]"}) {
      check_python(arrays +
                   fmt::format("pickle.dump((arrays, {}), file, protocol={})", same, protocol));
    }
  }
  python(
      "import numpy, pickle\n"
      "wide = [numpy.zeros(3, numpy.float32), numpy.zeros(3, numpy.float32)]\n"
      "pickle.dump((wide, [True]), open('wide.bin', 'wb'), protocol=4)");
  EXPECT_THAT(input_error_of([&] { FacePairsFile(directory_ / "wide.bin"); }),
              HasSubstr("image that is not bytes"));
}

// Python 2 wrote the sets that are in use, with its string opcodes; the script spells them out.
TEST_F(FacePairsTest, ReadsPython2sStrings) {
  check_python(R"(
import struct
def string(data, key):
    short = len(data) < 256
    head = b'U' + bytes([len(data)]) if short else b'T' + struct.pack('<i', len(data))
    return head + data + (b'q' + bytes([key]) if key < 256 else b'r' + struct.pack('<I', key))
file.write(b'\x80\x02]q\x00')
for start in range(0, 5000, 1000):
    file.write(b'(' + b''.join(string(images[i], i % 60000 + 1)
                               for i in range(start, start + 1000)) + b'e')
file.write(b']r\x60\xea\x00\x00(' + b''.join(b'\x88' if i else b'\x89' for i in same)
           + b'e\x86r\x61\xea\x00\x00.')
)");
}

TEST_F(FacePairsTest, PythonReadsWhatIsWritten) {
  const std::string first = "one", second(300, 'x');
  FacePairs pairs;
  for (const std::string* image : {&first, &second, &second, &first}) {
    pairs.images.push_back(std::as_bytes(std::span(*image)));
  }
  pairs.same = {true, false};
  write_text(directory_ / "own.bin", encode_face_pairs(pairs));
  EXPECT_EQ(python("import pickle\n"
                   "print(pickle.load(open('own.bin', 'rb'), encoding='bytes') == "
                   "([b'one', b'x' * 300, b'x' * 300, b'one'], [True, False]))"),
            "True\n");
  const FacePairsFile file(directory_ / "own.bin");
  EXPECT_EQ(file.pairs().same, pairs.same);
  EXPECT_EQ(as_text(file.pairs().images[1]), second);
}

TEST_F(FacePairsTest, RefusesObjectsWithoutMakingThem) {
  python(
      "import os, pickle\n"
      "class Evil:\n"
      "    def __reduce__(self): return (os.mkdir, ('made',))\n"
      "pickle.dump(([Evil(), b'x'], [True]), open('evil.bin', 'wb'), protocol=3)");
  EXPECT_THAT(input_error_of([&] { FacePairsFile(directory_ / "evil.bin"); }),
              HasSubstr("image that is not bytes"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "made"));
}

TEST_F(FacePairsTest, EveryMistakeIsOneSentenceWithFileAndOffset) {
  EXPECT_THAT(error_for(""), HasSubstr("Byte 0 of 'pairs.bin'"));
  EXPECT_THAT(error_for("]."), HasSubstr("holds 0 objects"));
  EXPECT_THAT(error_for("K\1."), HasSubstr("where a list belongs"));
  EXPECT_THAT(error_for("](K\1\x65]\x86."), HasSubstr("1 images and 0 answers"));
  EXPECT_THAT(error_for("]]\x86."), HasSubstr("0 images and 0 answers"));
  EXPECT_THAT(error_for("](K\1K\1\x65](\x88\x65\x86."), HasSubstr("not bytes"));
  EXPECT_THAT(error_for("](C\1xC\1y\x65](K\2\x65\x86."), HasSubstr("not a boolean"));
  EXPECT_THAT(error_for("](C\1xC\1y"), HasSubstr("Byte 8"));
  EXPECT_THAT(error_for("B\xff\xff\xff\xff"), HasSubstr("0 are left"));
  EXPECT_THAT(error_for("\x8e\xff\xff\xff\xff\xff\xff\xff\xff."), HasSubstr("1 are left"));
  EXPECT_THAT(error_for("e"), HasSubstr("did not begin"));
  EXPECT_THAT(error_for("(e"), HasSubstr("not there"));
  EXPECT_THAT(error_for("h\7"), HasSubstr("recalls object 7"));
  EXPECT_THAT(error_for("q\7"), HasSubstr("empty stack"));
  EXPECT_THAT(error_for("\x86"), HasSubstr("empty stack"));
  EXPECT_THAT(error_for("Ix\n"), HasSubstr("where a number belongs"));
  EXPECT_THAT(error_for("\x80\x09"), HasSubstr("protocol 9"));
  EXPECT_THAT(error_for("](C\1xC\1y\x65](\x8a\x02\x01\x01\x65\x86."), HasSubstr("not a boolean"));
  EXPECT_THAT(error_for("P1\n"), HasSubstr("opcode 0x50"));
  EXPECT_THAT(error_for(std::string((size_t{1} << 22) + 1, ']')), HasSubstr("too much at once"));
}

}  // namespace
}  // namespace millrace::data
