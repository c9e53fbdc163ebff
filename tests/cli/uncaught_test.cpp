#include "cli/uncaught.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/shortage.h"

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

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which need memory themselves
void use_all_memory() {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t size = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
  const rlimit no_more = {size, size};
  ::setrlimit(RLIMIT_AS, &no_more);
  std::vector<char*> kept(size_t{1} << 10);
  for (size_t i = 0;; ++i) kept[i % kept.size()] = new char[48];
}

// Small pieces, so that nothing at all is left for the sentence.
TEST(UncaughtDeathTest, ASentenceIsToldWithoutAnyMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ::setenv("PMI_RANK", "1", 1);
  ::setenv("PMI_SIZE", "3", 1);
  EXPECT_EXIT(leave_a_thread(use_all_memory), ::testing::ExitedWithCode(1),
              "^millrace: rank 1 on host .*, while the job began: There is not enough memory");
  ::unsetenv("PMI_RANK");
  ::unsetenv("PMI_SIZE");
}
#endif

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
  // What other ranks are told.
  EXPECT_STREQ(failure_text(std::bad_alloc()), "There is not enough memory for this job.");
  EXPECT_STREQ(failure_text(std::runtime_error("x")), "x");
}

}  // namespace
}  // namespace millrace::cli
