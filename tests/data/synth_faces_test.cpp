#include "data/synth_faces.h"

#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "data/formats/byte_cursor.h"
#include "data/image/codec.h"
#include "data/tools.h"
#include "support.h"

namespace millrace::data {
namespace {

using ::testing::HasSubstr;

class SynthFacesTest : public DirectoryTest {
 protected:
  static FaceSynthOptions small() {
    FaceSynthOptions options;
    options.identities = 4;
    options.images = 3;
    options.size = 32;
    options.pairs = 20;
    return options;
  }
};

// The cosine of two images' pixels, each with its mean taken off.
double cosine(const Image& a, const Image& b) {
  double mean_a = 0, mean_b = 0;
  const auto count = static_cast<double>(a.pixels.size());
  for (size_t i = 0; i < a.pixels.size(); ++i) {
    mean_a += a.pixels[i] / count;
    mean_b += b.pixels[i] / count;
  }
  double product = 0, square_a = 0, square_b = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) {
    product += (a.pixels[i] - mean_a) * (b.pixels[i] - mean_b);
    square_a += std::pow(a.pixels[i] - mean_a, 2);
    square_b += std::pow(b.pixels[i] - mean_b, 2);
  }
  return product / std::sqrt(square_a * square_b);
}

TEST_F(SynthFacesTest, AreFunctionsOfTheirNumbers) {
  const Face face(1, 2);
  EXPECT_EQ(face.view(3, 40).pixels, Face(1, 2).view(3, 40).pixels);
  EXPECT_NE(face.view(3, 40).pixels, face.view(4, 40).pixels);
  EXPECT_NE(face.view(3, 40).pixels, Face(1, 3).view(3, 40).pixels);
  EXPECT_NE(face.view(3, 40).pixels, Face(2, 2).view(3, 40).pixels);
}

// The best threshold on the pixels must leave work to a network, yet not all: views of one
// person have something in common.
TEST_F(SynthFacesTest, PixelsAloneDoNotTellPeopleApart) {
  std::vector<Face> people;
  for (int64_t i = 0; i < 30; ++i) people.emplace_back(0, i);
  std::vector<std::pair<double, bool>> pairs;
  for (size_t i = 0; i < 300; ++i) {
    const auto view = static_cast<int64_t>(2 * i);
    const Image first = people[i % 30].view(view, 56);
    pairs.emplace_back(cosine(first, people[i % 30].view(view + 1, 56)), true);
    pairs.emplace_back(cosine(first, people[(i + 1 + i % 29) % 30].view(view + 1, 56)), false);
  }
  std::sort(pairs.begin(), pairs.end());
  int64_t right = 300, best = 300;
  for (const auto& [similarity, same] : pairs) {
    right += same ? -1 : 1;
    best = std::max(best, right);
  }
  const double accuracy = static_cast<double>(best) / static_cast<double>(pairs.size());
  EXPECT_LT(accuracy, 0.85);
  EXPECT_GT(accuracy, 0.55);
}

TEST_F(SynthFacesTest, RecordsAreLaidOutAsInsightFaceDoes) {
  const std::string set = "recordio:" + (directory_ / "faces.rec").string();
  const Json facts = synth_faces(set, small(), {});
  EXPECT_EQ(facts["records"], 12);
  EXPECT_EQ(facts["pairs"], 20);
  // Python walks the file by its index: header, samples, identities.
  EXPECT_EQ(python(R"(
import struct
data = open('faces.rec', 'rb').read()
index = [line.split('\t') for line in open('faces.idx').read().splitlines()]
for key, offset in index:
    magic, length = struct.unpack_from('<II', data, int(offset))
    assert magic == 0xced7230a and length >> 29 == 0
    flag, label, number, _ = struct.unpack_from('<IfQQ', data, int(offset) + 8)
    labels = struct.unpack_from('<%df' % flag, data, int(offset) + 32)
    image = data[int(offset) + 32 + 4 * flag:int(offset) + 8 + length]
    print(key, flag, int(label), labels, image[:2].hex())
)"),
            "0 2 0 (13.0, 17.0) \n"
            "1 0 0 () ffd8\n2 0 0 () ffd8\n3 0 0 () ffd8\n"
            "4 0 1 () ffd8\n5 0 1 () ffd8\n6 0 1 () ffd8\n"
            "7 0 2 () ffd8\n8 0 2 () ffd8\n9 0 2 () ffd8\n"
            "10 0 3 () ffd8\n11 0 3 () ffd8\n12 0 3 () ffd8\n"
            "13 2 0 (1.0, 4.0) \n14 2 0 (4.0, 7.0) \n15 2 0 (7.0, 10.0) \n16 2 0 (10.0, 13.0) \n");
  const auto source = open_source(set, Split::train);
  ASSERT_EQ(source->count(), 12u);
  EXPECT_EQ(source->classes(), 4);
  for (uint64_t i = 0; i < 12; ++i) EXPECT_EQ(source->read(i).label, static_cast<int64_t>(i / 3));
}

TEST_F(SynthFacesTest, PairsHoldImagesThatTrainingDoesNotSee) {
  FaceSynthOptions options = small();
  const std::string set = "folder:" + (directory_ / "faces").string();
  synth_faces(set, options, {}, directory_ / "held.bin");
  const FacePairsFile file(directory_ / "held.bin");
  const FacePairs& pairs = file.pairs();
  ASSERT_EQ(pairs.count(), 20u);
  EXPECT_EQ(std::count(pairs.same.begin(), pairs.same.end(), true), 10);
  std::set<std::string> seen;
  const auto source = open_source(set, Split::train);
  for (uint64_t i = 0; i < source->count(); ++i) {
    const Sample sample = source->read(i);
    seen.emplace(as_text(sample.bytes));
  }
  EXPECT_EQ(seen.size(), 12u);
  for (const auto& image : pairs.images) {
    EXPECT_TRUE(seen.emplace(as_text(image)).second);
    Sample sample;
    sample.bytes = image;
    EXPECT_EQ(decode_image(sample).height, 32);
  }
}

TEST_F(SynthFacesTest, PixelFormatsTakeThemToo) {
  FaceSynthOptions options = small();
  options.pairs = 0;
  const std::string set = "raw:" + (directory_ / "faces.safetensors").string();
  synth_faces(set, options, {});
  const auto source = open_source(set, Split::train);
  ASSERT_EQ(source->count(), 12u);
  const Image expected = Face(0, 1).view(1, 32);
  EXPECT_EQ(as_text(source->read(4).bytes), as_text(std::as_bytes(std::span(expected.pixels))));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "pairs.bin"));
}

TEST_F(SynthFacesTest, RefusesWhatCannotBeMade) {
  const std::string set = "recordio:" + (directory_ / "faces.rec").string();
  const auto error_with = [&](auto change) {
    FaceSynthOptions options = small();
    change(options);
    return input_error_of([&] { synth_faces(set, options, {}); });
  };
  EXPECT_THAT(error_with([](auto& o) { o.identities = 0; }), HasSubstr("‹identities› is 0"));
  EXPECT_THAT(error_with([](auto& o) { o.identities = 1; }), HasSubstr("‹pairs› 0"));
  EXPECT_THAT(error_with([](auto& o) { o.images = -1; }), HasSubstr("‹images›"));
  EXPECT_THAT(error_with([](auto& o) { o.size = 3; }), HasSubstr("‹size›"));
  EXPECT_THAT(error_with([](auto& o) { o.quality = 0; }), HasSubstr("‹quality›"));
  EXPECT_THAT(error_with([](auto& o) {
                o.identities = 1 << 23;
                o.images = 2;
              }),
              HasSubstr("32-bit floats"));
  write_text(directory_ / "pairs.bin", "mine");
  EXPECT_THAT(error_with([](auto&) {}), HasSubstr("already exists"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "faces.rec"));
}

}  // namespace
}  // namespace millrace::data
