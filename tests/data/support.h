// Helpers of the data tests: a fresh directory per test, and Python's standard library as the
// independent reader and writer of every format.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/file.h"

namespace millrace::data {

// A directory of its own per test, removed afterwards.
class DirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::path(::testing::TempDir()) / "millrace-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  // Runs a Python script inside the directory and returns what it printed.
  std::string python(const std::string& script) const {
    write_text(directory_ / "script.py", script);
    const std::string command =
        fmt::format("cd '{}' && /usr/bin/python3 -I script.py 2>&1", directory_.string());
    FILE* pipe = ::popen(command.c_str(), "r");
    if (pipe == nullptr) fail_job("Cannot start Python.");
    std::string output;
    std::array<char, 4096> buffer = {};
    while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
      output.append(buffer.data(), count);
    }
    const int status = ::pclose(pipe);
    std::filesystem::remove(directory_ / "script.py");
    EXPECT_EQ(status, 0) << output;
    return output;
  }

  std::filesystem::path directory_;
};

// The message of the InputError that `action` throws; empty if it throws none.
template <typename Action>
std::string input_error_of(Action&& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.marked();
  }
  return "";
}

}  // namespace millrace::data
