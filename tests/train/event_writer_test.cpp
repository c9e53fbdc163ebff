#include "train/event_writer.h"

#include "support.h"

namespace millrace::train {
namespace {

// Of RFC 3720, appendix B.4.
TEST(Events, ChecksumsAreThoseOfTheStandard) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  std::string rising;
  for (char i = 0; i < 32; ++i) rising += i;
  EXPECT_EQ(crc32c(rising), 0x46DD794Eu);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
}

// Bytes by the formats' definitions: TFRecord's length, and fields of Event by number and type.
TEST(Events, ARecordIsLengthChecksumBytesChecksum) {
  const std::string record = scalar_record(1.5, 3, {{"a", 0.25}});
  const std::string event(
      "\x09\x00\x00\x00\x00\x00\x00\xF8\x3F"  // 1: 1.5 as a double
      "\x10\x03"                              // 2: step 3
      "\x2A\x0A"                              // 5: the summary, 10 bytes
      "\x0A\x08"                              //   1: a value, 8 bytes
      "\x0A\x01"                              //     1: the tag
      "a"
      "\x15\x00\x00\x80\x3E",  //     2: 0.25 as a float
      9 + 2 + 2 + 2 + 3 + 5);
  ASSERT_EQ(record.size(), 8 + 4 + event.size() + 4);
  EXPECT_EQ(record.substr(0, 8), std::string("\x17\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, event.size()), event);
}

class EventsTest : public DirectoryTest {};

TEST_F(EventsTest, AJobWritesOneFileOfWholeRecords) {
  EventWriter writer(directory_ / "board", "model: resnet50\n");
  writer.on_start({.first_step = 4});
  writer.on_step({.step = 5, .loss = 0.5});
  writer.on_evaluation({.step = 5, .figures = {{"top1", 0.25}}});
  const WorstSample worst = {.score = {.label = 1, .loss = 2.0},
                             .share = 0.75,
                             .name = "a|b",
                             .told = "cat",
                             .image = {2, 2, 1, {1, 2, 3, 4}}};
  writer.on_evaluation({.step = 6, .worst = {worst, worst}});
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory_ / "board")) {
    files.push_back(entry.path());
  }
  ASSERT_EQ(files.size(), 1u);
  EXPECT_TRUE(files[0].filename().string().starts_with("events.out.tfevents."));
  const std::string text = read_text(files[0]);
  size_t at = 0, records = 0;
  for (; at < text.size(); ++records) {
    const auto length = static_cast<size_t>(static_cast<uint8_t>(text[at])) +
                        256 * static_cast<size_t>(static_cast<uint8_t>(text[at + 1]));
    at += 12 + length + 4;
  }
  EXPECT_EQ(at, text.size());
  // Version, start, configuration, step, two evaluations, the table and two pictures of the last.
  EXPECT_EQ(records, 9u);
  EXPECT_NE(text.find("predictions/2"), std::string::npos);
  EXPECT_NE(text.find("| 2 | a\\|b | cat | 75.0 % | 13.5 % |"), std::string::npos);
  EXPECT_NE(text.find("train/loss"), std::string::npos);
  EXPECT_NE(text.find("valid/top1"), std::string::npos);
  EXPECT_NE(text.find("    model: resnet50"), std::string::npos);
  EXPECT_EQ(writer.failure(), "");
}

}  // namespace
}  // namespace millrace::train
