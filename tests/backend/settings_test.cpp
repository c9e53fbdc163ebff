#include "backend/settings.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace millrace::backend {
namespace {

using Kind = BackendSettings::Kind;
using Order = BackendSettings::Order;

TEST(BackendSettings, AreReadFromText) {
  EXPECT_EQ(parse_backend("cpu", ""), BackendSettings());
  EXPECT_EQ(parse_backend("strict", ""), (BackendSettings{Kind::strict, Order::lazy, 0}));
  EXPECT_EQ(parse_backend("strict", "eager"), (BackendSettings{Kind::strict, Order::eager, 0}));
  EXPECT_EQ(parse_backend("strict", "random:17"),
            (BackendSettings{Kind::strict, Order::random, 17}));
  EXPECT_EQ(parse_backend("strict", "slow:3"), (BackendSettings{Kind::strict, Order::slow, 3}));
}

TEST(BackendSettings, AreRefusedWithASentence) {
  EXPECT_THROW(parse_backend("gpu", ""), InputError);
  for (const char* order :
       {"late", "random", "random:", "random:x", "random:1x", "random:-1", "slow", "slow:"}) {
    EXPECT_THROW(parse_backend("strict", order), InputError) << order;
  }
  EXPECT_THROW(parse_backend("cpu", "lazy"), InputError) << "an order that has no effect";
}

}  // namespace
}  // namespace millrace::backend
