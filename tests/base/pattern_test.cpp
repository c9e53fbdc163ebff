#include "base/pattern.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace millrace {
namespace {

TEST(PatternTest, ANameOfALayerMeansItsTensors) {
  EXPECT_TRUE(fits_pattern("fc", "fc"));
  EXPECT_TRUE(fits_pattern("fc", "fc.weight"));
  EXPECT_TRUE(fits_pattern("layer4", "layer4.0.bn1.weight"));
  EXPECT_FALSE(fits_pattern("fc", "fc2.weight"));
  EXPECT_FALSE(fits_pattern("weight", "fc.weight"));
  EXPECT_FALSE(fits_pattern("layer4.0.bn1.weight.x", "layer4.0.bn1.weight"));
}

TEST(PatternTest, StarsStandForAnything) {
  EXPECT_TRUE(fits_pattern("*", "conv1.weight"));
  EXPECT_TRUE(fits_pattern("*.bn?", "layer4.0.bn1.weight"));
  EXPECT_TRUE(fits_pattern("layer*.bias", "layer4.0.bias"));
  EXPECT_TRUE(fits_pattern("*a*b", "xaxbxab"));
  EXPECT_FALSE(fits_pattern("*.bn?", "layer4.0.bn.weight"));
  EXPECT_FALSE(fits_pattern("*a*b", "xaxbxabx"));
  EXPECT_FALSE(fits_pattern("", "fc"));
}

TEST(PatternTest, ListsAreSplitAtCommas) {
  EXPECT_THAT(parse_patterns("fc,layer4.*", "--freeze"), ::testing::ElementsAre("fc", "layer4.*"));
  EXPECT_TRUE(fits_any({"conv1", "fc"}, "fc.bias"));
  EXPECT_FALSE(fits_any({}, "fc.bias"));
  EXPECT_THROW(parse_patterns("fc,", "--freeze"), InputError);
}

}  // namespace
}  // namespace millrace
