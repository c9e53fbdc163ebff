#include "base/file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "base/lost_pages.h"
#include "base/output_file.h"

namespace millrace {
namespace {

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::path(::testing::TempDir()) /
                 ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::filesystem::path directory_;
};

TEST_F(FileTest, RoundTrip) {
  write_text(directory_ / "a", "hello");
  EXPECT_EQ(read_text(directory_ / "a"), "hello");
  write_text(directory_ / "a", "");
  EXPECT_EQ(read_text(directory_ / "a"), "");
}

TEST_F(FileTest, WithoutCommitTheOldFileStays) {
  write_text(directory_ / "a", "old");
  {
    OutputFile file(directory_ / "a");
    file.write("new");
  }
  EXPECT_EQ(read_text(directory_ / "a"), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1);
}

TEST_F(FileTest, ErrorsNameThePath) {
  try {
    read_text(directory_ / "missing");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("missing"), std::string::npos);
  }
  EXPECT_THROW(MappedFile{directory_}, InputError);
  require_writable(directory_ / "fine", "--summary");
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

// In a process of its own, as what was lost stays lost.
TEST_F(FileTest, AFileThatBecomesShorterReadsAsZerosAndIsTold) {
  const auto reads_lost_page = [&] {
    survive_lost_pages();
    const std::filesystem::path path = directory_ / "a";
    write_text(path, std::string(20'000, 'x'));
    const MappedFile file(path);
    expect_no_lost_pages();
    std::filesystem::resize_file(path, 10);
    const bool is_zero = file.bytes()[19'000] == std::byte{0};
    try {
      expect_no_lost_pages();
    } catch (const InputError& error) {
      ::_exit(is_zero && std::string(error.what()).find(path.string()) != std::string::npos ? 7
                                                                                            : 8);
    }
    ::_exit(9);
  };
  EXPECT_EXIT(reads_lost_page(), ::testing::ExitedWithCode(7), "");
}

TEST(LostPages, OtherCausesEndTheProcess) {
  const auto is_signalled = [] {
    survive_lost_pages();
    ::raise(SIGBUS);
  };
  EXPECT_EXIT(is_signalled(), ::testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace millrace
