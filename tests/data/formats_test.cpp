#include <gmock/gmock.h>

#include <cstring>

#include "data/image/codec.h"
#include "format_support.h"

namespace millrace::data {
namespace {

using ::testing::HasSubstr;

TEST_F(FormatsTest, EveryFormatRoundTripsPixelsAndLabels) {
  for (const char* format : {"ofrecord", "recordio", "folder", "idx", "raw"}) {
    for (const int channels : {1, 3}) {
      std::vector<Sample> samples;
      for (const int64_t label : {0, 0, 3, 7})
        samples.push_back(pixel_sample(5, 4, channels, label));
      const std::string name = at(format, fmt::format("{}{}.rec", format, channels));
      write(name, samples);
      const auto source = open_source(name, Split::train);
      ASSERT_EQ(source->count(), samples.size()) << name;
      for (uint64_t i = 0; i < source->count(); ++i) {
        const Sample sample = source->read(i);
        EXPECT_EQ(sample.label, samples[i].label) << name;
        const bool in_records = name.starts_with("ofrecord") || name.starts_with("recordio");
        EXPECT_EQ(source->label(i), in_records ? std::nullopt : std::optional(sample.label))
            << name;
        const Image image = decode_image(sample);
        ASSERT_EQ(image.pixels.size(), samples[i].bytes.size()) << name;
        EXPECT_EQ(std::memcmp(image.pixels.data(), samples[i].bytes.data(), image.pixels.size()), 0)
            << name;
      }
      EXPECT_NE(input_error_of([&] { write(name, samples); }), "") << name;
    }
  }
}

TEST_F(FormatsTest, SpecificationsAreChecked) {
  EXPECT_THAT(input_error_of([] { open_source("ofrecrod:x", Split::train); }),
              HasSubstr("did you mean ofrecord"));
  EXPECT_THAT(input_error_of([] { open_source("idx", Split::train); }), HasSubstr("idx:PATH"));
  for (const char* format : {"ofrecord", "recordio", "folder", "idx", "raw"}) {
    EXPECT_THAT(input_error_of([&] { open_source(at(format, "none"), Split::train); }),
                HasSubstr("none"))
        << format;
  }
}

TEST_F(FormatsTest, SplitsAreChosenByDirectory) {
  std::vector<Sample> train;
  train.push_back(pixel_sample(2, 2, 1, 1));
  std::vector<Sample> test;
  for (int i = 0; i < 3; ++i) test.push_back(pixel_sample(2, 2, 1, 1));
  std::filesystem::create_directory(directory_ / "set");
  for (const char* format : {"ofrecord", "folder"}) {
    write(at(format, fmt::format("{}/train", format)), train);
    write(at(format, fmt::format("{}/val", format)), test);
    EXPECT_EQ(open_source(at(format, format), Split::train)->count(), 1u);
    EXPECT_EQ(open_source(at(format, format), Split::test)->count(), 3u);
  }
}

TEST_F(FormatsTest, PythonReadsOurIdxAndWeReadItsGzippedOne) {
  std::vector<Sample> samples;
  for (const int64_t label : {9, 0, 255}) samples.push_back(pixel_sample(2, 3, 1, label));
  write(at("idx", "."), samples);
  EXPECT_EQ(python(R"(
import gzip, struct
b = open('train-images-idx3-ubyte', 'rb').read()
l = open('train-labels-idx1-ubyte', 'rb').read()
print(struct.unpack('>HBB3I', b[:16]), list(b[16:22]), len(b), struct.unpack('>HBBI', l[:8]), list(l[8:]))
gzip.open('t10k-images-idx3-ubyte.gz', 'wb').write(struct.pack('>HBB3I', 0, 8, 3, 2, 2, 2) + bytes(range(8)))
gzip.open('t10k-labels-idx1-ubyte.gz', 'wb').write(struct.pack('>HBBI', 0, 8, 1, 2) + bytes([4, 200]))
)"),
            "(0, 8, 3, 3, 2, 3) [99, 136, 173, 210, 247, 28] 34 (0, 8, 1, 3) [9, 0, 255]\n");
  const auto test = open_source(at("idx", "."), Split::test);
  ASSERT_EQ(test->count(), 2u);
  EXPECT_EQ(text_of(test->read(1)), "\x04\x05\x06\x07");
  EXPECT_EQ(test->read(1).label, 200);
  overwrite("t10k-images-idx3-ubyte.gz", [](std::string& bytes) { bytes[bytes.size() - 6] ^= 1; });
  EXPECT_THAT(input_error_of([&] { open_source(at("idx", "."), Split::test); }),
              HasSubstr("t10k-images-idx3-ubyte.gz' is damaged"));
}

TEST_F(FormatsTest, CutOffIdxKeepsItsWholeImages) {
  std::vector<Sample> samples;
  for (const int64_t label : {1, 2, 3, 4}) samples.push_back(pixel_sample(2, 3, 1, label));
  write(at("idx", "."), samples);
  overwrite("train-images-idx3-ubyte", [](std::string& bytes) { bytes.resize(16 + 2 * 6 + 1); });
  const auto source = open_source(at("idx", "."), Split::train);
  ASSERT_EQ(source->count(), 3u);
  EXPECT_EQ(source->read(1).label, 2);
  EXPECT_THAT(input_error_of([&] { source->read(2); }), HasSubstr("ends"));
  EXPECT_EQ(source->place(2).offset, 28u);
  overwrite("train-images-idx3-ubyte", [](std::string& bytes) { bytes[7] = 5; });
  EXPECT_THAT(input_error_of([&] { open_source(at("idx", "."), Split::train); }),
              HasSubstr("5 images"));
}

TEST_F(FormatsTest, ReadsFashionMnist) {
  const auto source = open_source("idx:/usr/share/datasets/fashion-mnist", Split::test);
  ASSERT_EQ(source->count(), 10000u);
  std::vector<int> histogram(10);
  for (uint64_t i = 0; i < source->count(); ++i)
    ++histogram.at(static_cast<size_t>(source->read(i).label));
  EXPECT_EQ(histogram, std::vector<int>(10, 1000));
}

TEST_F(FormatsTest, FolderLabelsFollowSortedClassNames) {
  for (const char* name : {"set/zebra/deep", "set/ant", "set/.hidden"}) {
    std::filesystem::create_directories(directory_ / name);
  }
  write_text(directory_ / "set/zebra/deep/b.JPG", "z");
  write_text(directory_ / "set/ant/b.png", "b");
  write_text(directory_ / "set/ant/a.jpeg", "a");
  write_text(directory_ / "set/ant/notes.txt", "no image");
  write_text(directory_ / "set/.hidden/a.jpg", "no class");
  const auto source = open_source(at("folder", "set"), Split::train);
  ASSERT_EQ(source->count(), 3u);
  EXPECT_EQ(source->class_names(), (std::vector<std::string>{"ant", "zebra"}));
  EXPECT_EQ(text_of(source->read(0)), "a");
  EXPECT_EQ(source->read(2).label, 1);
  std::filesystem::remove(directory_ / "set/ant/a.jpeg");
  EXPECT_THROW(source->read(0), BadData);
}

TEST_F(FormatsTest, FolderLabelsFollowTheNamesGiven) {
  for (const char* name : {"set/zebra", "set/ant", "set/empty"}) {
    std::filesystem::create_directories(directory_ / name);
  }
  write_text(directory_ / "set/zebra/b.jpg", "z");
  write_text(directory_ / "set/ant/b.png", "b");
  const std::vector<std::string> names = {"wolf", "zebra", "yak", "ant"};
  const auto source = open_source(at("folder", "set"), Split::train, names);
  ASSERT_EQ(source->count(), 2u);
  EXPECT_EQ(source->read(0).label, 3);
  EXPECT_EQ(source->read(1).label, 1);
  EXPECT_EQ(source->classes(), 4);
  EXPECT_THAT(input_error_of([&] {
                open_source(at("folder", "set"), Split::train, {"zebra", "aunt"});
              }),
              HasSubstr("did you mean 'aunt'?"));
}

// What is known of the classes without reading every record.
TEST_F(FormatsTest, ClassesAreCounted) {
  std::vector<Sample> samples;
  for (const int64_t label : {0, 4, 2}) samples.push_back(pixel_sample(2, 2, 3, label));
  for (const auto& [set, count] :
       {std::pair(at("folder", "f"), 5), std::pair(at("idx", "i"), 5), std::pair(at("raw", "r"), 5),
        std::pair(at("recordio", "r.rec"), 0), std::pair(at("ofrecord", "o"), 0)}) {
    write(set, samples);
    EXPECT_EQ(classes_of(set, Split::train).count, count) << set;
  }
  EXPECT_EQ(classes_of(at("folder", "f"), Split::train).names.size(), 5u);
  EXPECT_THROW(classes_of(at("folder", "absent"), Split::train), InputError);
}

TEST_F(FormatsTest, RawReadsPythonsTensors) {
  python(R"(
import json, struct
h = json.dumps({'images': {'dtype': 'U8', 'shape': [2, 1, 2, 3], 'data_offsets': [0, 12]},
                'labels': {'dtype': 'I32', 'shape': [2], 'data_offsets': [12, 20]}}).encode()
open('r', 'wb').write(struct.pack('<Q', len(h)) + h + bytes(range(12)) + struct.pack('<2i', 7, 8))
)");
  const auto source = open_source(at("raw", "r"), Split::train);
  ASSERT_EQ(source->count(), 2u);
  EXPECT_EQ(text_of(source->read(1)), "\x06\x07\x08\x09\x0a\x0b");
  EXPECT_EQ(source->read(1).label, 8);
  EXPECT_EQ(source->read(1).channels, 3);
}

}  // namespace
}  // namespace millrace::data
