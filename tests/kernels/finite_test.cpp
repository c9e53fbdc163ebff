#include "kernels/support/finite.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace millrace::kernels {
namespace {

using Limits = std::numeric_limits<float>;

TEST(Finite, ExtremesAndDenormalsAre) {
  const std::vector<float> extremes = {
      0.0f, -0.0f, Limits::max(), Limits::lowest(), Limits::denorm_min(), -Limits::min()};
  for (size_t count = 0; count < 300; ++count) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = extremes[i % extremes.size()];
    EXPECT_TRUE(all_finite(values.data(), static_cast<int64_t>(count))) << count;
  }
}

TEST(Finite, OneThatIsNotIsFoundAnywhere) {
  for (const float bad :
       {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), -Limits::signaling_NaN()}) {
    std::vector<float> values(200, Limits::max());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = bad;
      EXPECT_FALSE(all_finite(values.data(), static_cast<int64_t>(values.size()))) << i;
      EXPECT_TRUE(all_finite(values.data(), static_cast<int64_t>(i)));
      values[i] = 1;
    }
    std::vector<float> many(1 << 18, 1.0f);  // more than one thread's share
    many[many.size() - 3] = bad;
    EXPECT_FALSE(all_finite(many.data(), static_cast<int64_t>(many.size())));
  }
}

}  // namespace
}  // namespace millrace::kernels
