#include "planner/profile.h"

#include <gmock/gmock.h>

#include <random>

#include "base/error.h"
#include "base/file.h"
#include "reference.h"

namespace millrace::planner {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

const std::string kCosts =
    "forward_compute_time=1.000, backward_compute_time=2.000, activation_size=3.000, "
    "parameter_size=4.000";

void expect_refusal(const std::string& text, const std::string& line, const std::string& part) {
  try {
    parse_profile(text, "some.txt");
    ADD_FAILURE() << "accepted: " << text;
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'some.txt'"), HasSubstr(line), HasSubstr(part)));
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

TEST(ProfileTest, ReadsPublishedFiles) {
  const Profile profile = reference::published("vgg16");
  EXPECT_EQ(profile.nodes.size(), 41u);
  EXPECT_EQ(profile.edges.size(), 41u);
  EXPECT_EQ(profile.nodes[0].id, "node11");
  EXPECT_EQ(profile.nodes[0].description,
            "MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)");
  EXPECT_DOUBLE_EQ(profile.nodes[0].backward_milliseconds, 2.788);
  EXPECT_DOUBLE_EQ(profile.nodes[0].activation_bytes, 205520896);
}

TEST(ProfileTest, PublishedFilesComeBackByteForByte) {
  for (const char* name : {"alexnet", "vgg16"}) {
    const std::string text =
        read_text(std::string(MILLRACE_TEST_DATA) + "/profiles/" + name + ".txt");
    EXPECT_EQ(format_profile(parse_profile(text, name)), text + "\n");
  }
}

TEST(ProfileTest, FieldsOfEveryKind) {
  const Profile profile = parse_profile(
      "\tb -- a\r\n\n"
      "a -- Conv(x=1, y=(2, 3)) -- odd -- forward_compute_time=0.5, backward_compute_time=1e1, "
      "activation_size=[1.5; 2; 3e2], parameter_size=0 -- stage_id=7\r\n"
      "b --  -- parameter_size=4, activation_size=3, forward_compute_time=1, "
      "backward_compute_time=2\n"
      "\tb -- a\n",
      "some.txt");
  ASSERT_EQ(profile.nodes.size(), 2u);
  const ProfileNode& a = profile.nodes[0];
  EXPECT_EQ(a.description, "Conv(x=1, y=(2, 3)) -- odd");
  EXPECT_EQ(a.forward_milliseconds, 0.5);
  EXPECT_EQ(a.backward_milliseconds, 10);
  EXPECT_EQ(a.activation_bytes, 303.5);
  EXPECT_EQ(a.stage, 7);
  EXPECT_EQ(profile.nodes[1].description, "");
  EXPECT_EQ(profile.nodes[1].parameter_bytes, 4);
  EXPECT_FALSE(profile.nodes[1].stage);
  EXPECT_THAT(profile.edges, ElementsAre(Pair(1, 0)));
}

TEST(ProfileTest, EveryNumberSurvivesWriting) {
  Profile profile = reference::random_profile(20, 0.3, 5);
  profile.nodes[3].stage = 2;
  profile.nodes[4].activation_bytes = 1e18;
  profile.nodes[5].forward_milliseconds = 1e-300;
  const Profile again = parse_profile(format_profile(profile), "profile");
  EXPECT_EQ(again.edges, profile.edges);
  ASSERT_EQ(again.nodes.size(), profile.nodes.size());
  for (size_t node = 0; node < profile.nodes.size(); ++node) {
    EXPECT_EQ(again.nodes[node].id, profile.nodes[node].id);
    EXPECT_EQ(again.nodes[node].stage, profile.nodes[node].stage);
    EXPECT_EQ(again.nodes[node].forward_milliseconds, profile.nodes[node].forward_milliseconds);
    EXPECT_EQ(again.nodes[node].backward_milliseconds, profile.nodes[node].backward_milliseconds);
    EXPECT_EQ(again.nodes[node].activation_bytes, profile.nodes[node].activation_bytes);
    EXPECT_EQ(again.nodes[node].parameter_bytes, profile.nodes[node].parameter_bytes);
  }
}

TEST(ProfileTest, UnwritableNodesAreRefused) {
  for (const char* id : {"", "a -- b", "a\nb", "\ta"}) {
    Profile profile = reference::make_profile(1, {}, 1);
    profile.nodes[0].id = id;
    EXPECT_THROW(format_profile(profile), InputError) << id;
  }
  Profile profile = reference::make_profile(1, {}, 1);
  profile.nodes[0].description = "two\nlines";
  EXPECT_THROW(format_profile(profile), InputError);
}

TEST(ProfileTest, DamageIsNamedWithItsLine) {
  const std::string a = "a -- x -- " + kCosts + "\n";
  const std::string b = "b -- x -- " + kCosts + "\n";
  expect_refusal("", "", "no operators");
  expect_refusal("\n\n", "", "no operators");
  expect_refusal(a + "nonsense\n", "line 2", "nonsense");
  expect_refusal(a + std::string("\0\xff\x01\n", 4), "line 2", "???");
  expect_refusal("a -- " + kCosts, "line 1", "missing");
  expect_refusal(" -- x -- " + kCosts, "line 1", "missing");
  expect_refusal(a + a, "line 2", "before");
  expect_refusal(a + "\ta -- c\n", "line 2", "'c'");
  expect_refusal(a + "\tc -- a\n", "line 2", "'c'");
  expect_refusal(a + "\ta\n", "line 2", "edge");
  expect_refusal(a + "\ta -- \n", "line 2", "edge");
  expect_refusal(a + "\n\ta -- a\n", "line 3", "cycle");
  expect_refusal(a + b + "\ta -- b\n\tb -- a\n", "line", "cycle");
  expect_refusal("a -- x -- forward_compute_time=1", "line 1", "backward_compute_time");
  expect_refusal("a -- x -- " + kCosts + ", parameter_size=1", "line 1", "twice");
  expect_refusal("a -- x -- " + kCosts + ", colour=1", "line 1", "colour");
  expect_refusal("a -- x -- " + kCosts + " -- stage_id=two", "line 1", "stage_id");
  expect_refusal("a -- x -- " + kCosts + " -- stage_id=99999999999", "line 1", "stage_id");
  for (const char* value : {"", "x", "-1", "nan", "inf", "1e400", "1e19", "1 ", "1;2", "[1; 2",
                            "[]", "[", "[1;;2]", "[1; x]", "[9e17; 9e17]"}) {
    expect_refusal(
        "a -- x -- forward_compute_time=1, backward_compute_time=2, parameter_size=3, "
        "activation_size=" +
            std::string(value),
        "line 1", "activation_size");
  }
}

TEST(ProfileTest, ACycleIsNamedByOneOfItsOwnEdges) {
  std::string text;
  for (const char* id : {"a", "b", "c", "d", "e"}) {
    text += std::string(id) + " -- x -- " + kCosts + "\n";
  }
  expect_refusal(text + "\ta -- b\n\tb -- c\n\tc -- b\n\tc -- d\n\td -- e\n", "line",
                 "part of a cycle");
  for (const char* other : {"'a -- b'", "'c -- d'", "'d -- e'"}) {
    try {
      parse_profile(text + "\td -- e\n\tc -- d\n\tc -- b\n\tb -- c\n\ta -- b\n", "some.txt");
    } catch (const InputError& error) {
      EXPECT_EQ(std::string(error.what()).find(other), std::string::npos) << error.what();
    }
  }
}

// Whatever is done to a file, it is read or refused.
TEST(ProfileTest, MutatedFilesAreReadOrRefused) {
  const std::string good = read_text(std::string(MILLRACE_TEST_DATA) + "/profiles/alexnet.txt");
  std::mt19937 random(3);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (int change = 0; change < 1 + round % 4; ++change) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 40);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), random() % 60));
          break;
        default:
          text.resize(at + 1);
      }
    }
    try {
      const Profile profile = parse_profile(text, "some.txt");
      EXPECT_EQ(parse_profile(format_profile(profile), "again").nodes.size(), profile.nodes.size());
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr("some.txt"));
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace millrace::planner
