#include "train/checkpoint_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/file.h"

namespace millrace::train {
namespace {

using ::testing::HasSubstr;

class CheckpointLockTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string refusal() const {
    try {
      const CheckpointLock lock(directory_);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }

  const std::filesystem::path directory_ =
      std::filesystem::path(::testing::TempDir()) / ("lock_test_" + std::to_string(::getpid()));
};

TEST_F(CheckpointLockTest, ASecondJobIsRefusedAndToldTheOwner) {
  std::optional<CheckpointLock> lock(std::in_place, directory_);
  const std::string sentence = refusal();
  EXPECT_THAT(sentence, HasSubstr("process " + std::to_string(::getpid()) + " on host "));
  EXPECT_THAT(sentence, HasSubstr(directory_.string()));
  EXPECT_EQ(refusal(), sentence);  // and the refused job has not taken it away
  lock.reset();
  EXPECT_EQ(refusal(), "");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "lock"));
}

TEST_F(CheckpointLockTest, ADeadOwnerOfThisHostDoesNotCount) {
  const pid_t child = ::fork();
  if (child == 0) {
    const CheckpointLock lock(directory_);
    std::raise(SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_THAT(read_text(directory_ / "lock"), HasSubstr("process " + std::to_string(child)));
  EXPECT_EQ(refusal(), "");
}

TEST_F(CheckpointLockTest, AnOwnerOfAnotherHostMayBeAlive) {
  std::filesystem::create_directories(directory_);
  const std::string owner = "process 7 on host elsewhere.example, started 2024-05-04 12:30:01 UTC";
  std::ofstream(directory_ / "lock") << owner << "\n";
  EXPECT_THAT(refusal(), HasSubstr(owner));
  EXPECT_THAT(refusal(), HasSubstr((directory_ / "lock").string()));
  std::filesystem::remove(directory_ / "lock");
  EXPECT_EQ(refusal(), "");
}

TEST_F(CheckpointLockTest, WhatAnOwnerOfALostHostLeftCanBeRemovedUnlessItLives) {
  std::filesystem::create_directories(directory_);
  std::ofstream(directory_ / "lock") << "process 7 on host elsewhere.example, started today\n";
  ASSERT_THAT(refusal(), HasSubstr("elsewhere.example"));
  remove_abandoned_lock(directory_);
  EXPECT_EQ(refusal(), "");
  remove_abandoned_lock(directory_);  // there is none
  const CheckpointLock lock(directory_);
  remove_abandoned_lock(directory_);
  EXPECT_THAT(refusal(), HasSubstr("process " + std::to_string(::getpid())));
}

TEST_F(CheckpointLockTest, IsRenewedWhereTheDirectoryWasRemoved) {
  std::optional<CheckpointLock> lock(std::in_place, directory_);
  EXPECT_FALSE(lock->renew());
  std::filesystem::remove_all(directory_);
  EXPECT_TRUE(lock->renew());
  EXPECT_FALSE(lock->renew());
  EXPECT_THAT(refusal(), HasSubstr("process " + std::to_string(::getpid())));
  std::filesystem::remove_all(directory_);
  const CheckpointLock other(directory_);
  EXPECT_THROW(lock->renew(), InputError);
  lock.reset();
  EXPECT_TRUE(std::filesystem::exists(directory_ / "lock"));  // the other's
}

}  // namespace
}  // namespace millrace::train
