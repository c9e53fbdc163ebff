#include "cli/uncaught.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cerrno>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

namespace millrace::cli {
namespace {

void leave_a_thread(const std::function<void()>& fault) {
  tell_uncaught_errors();
  std::thread(fault).join();
}

TEST(UncaughtDeathTest, EndsWithASentenceInsteadOfAnAbort) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto ended = ::testing::ExitedWithCode(1);
  EXPECT_EXIT(leave_a_thread([] { throw std::bad_alloc(); }), ended,
              "^millrace: There is not enough memory for this job.\n$");
  EXPECT_EXIT(leave_a_thread([] { throw std::system_error(EAGAIN, std::generic_category()); }),
              ended, "No thread could be started: memory");
  EXPECT_EXIT(leave_a_thread([] { throw std::runtime_error("The fault."); }), ended,
              "^millrace: The fault.\n$");
}

TEST(Uncaught, RanksAreNamed) {
  ::setenv("PMI_RANK", "1", 1);
  ::setenv("PMI_SIZE", "3", 1);
  const std::string sentence = describe_shortage(std::bad_alloc());
  const std::string later = describe_shortage(std::bad_alloc(), ", in step 3");
  EXPECT_EXIT(leave_a_thread([] { throw std::bad_alloc(); }), ::testing::ExitedWithCode(1),
              "^millrace: rank 1 on host .*, while the job began: There is not enough memory");
  ::unsetenv("PMI_RANK");
  ::unsetenv("PMI_SIZE");
  EXPECT_EQ(sentence.find("rank 1 on host "), 0U) << sentence;
  EXPECT_NE(later.find(", in step 3: There is not enough memory"), std::string::npos) << later;
  EXPECT_EQ(describe_shortage(std::runtime_error("x")), "");
}

}  // namespace
}  // namespace millrace::cli
