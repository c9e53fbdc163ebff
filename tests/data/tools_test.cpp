#include "data/tools.h"

#include <gmock/gmock.h>

#include <cmath>

#include "data/image/codec.h"
#include "support.h"

namespace millrace::data {
namespace {

using ::testing::HasSubstr;

class ToolsTest : public DirectoryTest {
 protected:
  std::string at(const std::string& format, const std::string& name) const {
    return format + ":" + (directory_ / name).string();
  }
};

SynthOptions small_set() {
  SynthOptions options;
  options.count = 24;
  options.classes = 4;
  options.height = 40;
  options.width = 60;
  return options;
}

TEST_F(ToolsTest, SynthesisIsAFunctionOfItsOptions) {
  SynthOptions options = small_set();
  const Image image = synthesise_image(options, 5);
  EXPECT_EQ(image.pixels, synthesise_image(options, 5).pixels);
  EXPECT_NE(image.pixels, synthesise_image(options, 9).pixels);
  options.seed = 1;
  EXPECT_NE(image.pixels, synthesise_image(options, 5).pixels);
}

// The nearest class mean by colour tells most pictures of another seed apart.
TEST_F(ToolsTest, SyntheticClassesCanBeLearned) {
  SynthOptions options = small_set();
  options.count = 200;
  const auto colour = [&](uint64_t index) {
    const Image image = synthesise_image(options, index);
    std::array<double, 3> sum = {};
    for (size_t i = 0; i < image.pixels.size(); ++i) sum[i % 3] += image.pixels[i];
    const double total = sum[0] + sum[1] + sum[2];
    return std::array<double, 2>{sum[0] / total, sum[1] / total};
  };
  std::vector<std::array<double, 2>> means(4);
  for (uint64_t i = 0; i < options.count; ++i) {
    for (size_t c = 0; c < 2; ++c) means[i % 4][c] += colour(i)[c] / 50;
  }
  options.seed = 99;
  int right = 0;
  for (uint64_t i = 0; i < options.count; ++i) {
    const auto seen = colour(i);
    const auto distance = [&](size_t k) {
      return std::hypot(seen[0] - means[k][0], seen[1] - means[k][1]);
    };
    size_t best = 0;
    for (size_t k = 1; k < 4; ++k) best = distance(k) < distance(best) ? k : best;
    right += best == i % 4 ? 1 : 0;
  }
  EXPECT_GT(right, 120);
}

TEST_F(ToolsTest, ConvertsAnyFormatToAny) {
  const std::vector<std::string> formats = {"ofrecord", "recordio", "folder", "idx", "raw"};
  for (const std::string& from : formats) {
    synth_data(at(from, "from-" + from + ".rec"), small_set(), {});
    for (const std::string& to : formats) {
      const std::string source = at(from, "from-" + from + ".rec");
      const std::string target = at(to, from + "-" + to + ".rec");
      const Json facts = convert_data(source, Split::train, target, {}, BadRecords::fail);
      EXPECT_EQ(facts["records"], 24);
      const auto first = open_source(source, Split::train);
      const auto second = open_source(target, Split::train);
      ASSERT_EQ(second->count(), 24u);
      std::multimap<int64_t, std::vector<uint8_t>> before;
      std::multimap<int64_t, std::vector<uint8_t>> after;
      for (uint64_t i = 0; i < 24; ++i) {
        before.emplace(first->read(i).label, decode_image(first->read(i)).pixels);
        after.emplace(second->read(i).label, decode_image(second->read(i)).pixels);
      }
      EXPECT_EQ(before, after) << from << " to " << to;
    }
  }
}

TEST_F(ToolsTest, InspectsCountsHistogramAndSizes) {
  SynthOptions options = small_set();
  options.count = 10;
  synth_data(at("folder", "f"), options, {});
  const Json facts = inspect_data(at("folder", "f"), Split::train);
  EXPECT_EQ(facts["records"], 10);
  EXPECT_EQ(facts["classes"], 4);
  EXPECT_EQ(facts["histogram"], (Json{{"0", 3}, {"1", 3}, {"2", 2}, {"3", 2}}));
  EXPECT_EQ(facts["width"]["min"], 60);
  EXPECT_EQ(facts["height"]["max"], 40);
  EXPECT_EQ(facts["formats"], (Json{{"jpeg", 10}}));
  EXPECT_THAT(describe_inspection(facts), HasSubstr("class 1 (000001): 3"));
}

TEST_F(ToolsTest, VerifyListsEveryBadRecordWithItsPlace) {
  synth_data(at("recordio", "a.rec"), small_set(), {});
  const auto source = open_source(at("recordio", "a.rec"), Split::train);
  const uint64_t third = source->place(3).offset;
  const uint64_t fifth = source->place(5).offset;
  std::string bytes = read_text(directory_ / "a.rec");
  bytes[third] = 'X';           // magic number
  bytes[fifth + 8 + 24] = 'X';  // first marker of the JPEG
  write_text(directory_ / "a.rec", bytes);
  const Json facts = verify_data(at("recordio", "a.rec"), Split::train, 4);
  EXPECT_EQ(facts["good"], 22);
  ASSERT_EQ(facts["bad_count"], 2);
  EXPECT_EQ(facts["bad"][0]["record"], 3);
  EXPECT_EQ(facts["bad"][0]["offset"], third);
  EXPECT_EQ(facts["bad"][1]["record"], 5);
  EXPECT_THAT(describe_verification(facts),
              HasSubstr(fmt::format("Record 3 at byte {} of", third)));
  EXPECT_EQ(verify_data(at("recordio", "a.rec"), Split::train, 3)["bad_count"], 2 + 5);

  EXPECT_THAT(input_error_of([&] {
                convert_data(at("recordio", "a.rec"), Split::train, at("raw", "r"), {},
                             BadRecords::fail);
              }),
              HasSubstr("Record 3"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "r"));
  const Json converted =
      convert_data(at("recordio", "a.rec"), Split::train, at("raw", "r"), {}, BadRecords::skip);
  EXPECT_EQ(converted["skipped"], 2);
  EXPECT_EQ(converted["records"], 22);
  EXPECT_EQ(open_source(at("raw", "r"), Split::train)->count(), 22u);
}

}  // namespace
}  // namespace millrace::data
