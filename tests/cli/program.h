// Runs the built program as a user would.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/flag_names.h"

namespace millrace::cli {

struct Outcome {
  int status = -1;  // exit status, or 128 + signal
  std::string output;
  std::string errors;
};

// A directory of its own per test, in which the program runs; removed afterwards. Its cache
// lives there too.
class ProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::path(::testing::TempDir()) / "millrace-cli-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    std::filesystem::create_directory(directory_ / "work");
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  // Starts `millrace` with these arguments, separated by spaces.
  pid_t start(const std::string& arguments) const {
    std::vector<std::string> words = split(arguments, ' ');
    std::erase(words, "");
    words.insert(words.begin(), MILLRACE_PROGRAM);
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    const std::string output = (directory_ / "output").string();
    const std::string errors = (directory_ / "errors").string();
    const std::string cache = (directory_ / "cache").string();
    const pid_t child = ::fork();
    if (child != 0) return child;
    for (const int each : {SIGINT, SIGTERM, SIGHUP}) ::signal(each, SIG_DFL);
    ::setenv("XDG_CACHE_HOME", cache.c_str(), 1);
    if (::chdir((directory_ / "work").c_str()) != 0 ||
        std::freopen(output.c_str(), "w", stdout) == nullptr ||
        std::freopen(errors.c_str(), "w", stderr) == nullptr) {
      ::_exit(126);
    }
    ::execv(MILLRACE_PROGRAM, pointers.data());
    ::_exit(127);
  }

  Outcome wait_for(pid_t child) const {
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    Outcome outcome = {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                       read_text(directory_ / "output"), read_text(directory_ / "errors")};
    EXPECT_EQ(with_flags(outcome.output), outcome.output) << "a setting is not written as a flag";
    EXPECT_EQ(with_flags(outcome.errors), outcome.errors) << "a setting is not written as a flag";
    return outcome;
  }

  Outcome run(const std::string& arguments) const { return wait_for(start(arguments)); }

  // Bad usage: status 2, one sentence that has `part` in it, no output, no file left.
  void expect_refusal(const std::string& arguments, const std::string& part) const {
    std::vector<std::filesystem::path> before = files();
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments << "\n" << outcome.errors;
    EXPECT_NE(outcome.errors.find(part), std::string::npos) << arguments << "\n" << outcome.errors;
    EXPECT_EQ(outcome.errors.find('\n'), outcome.errors.size() - 1) << outcome.errors;
    EXPECT_EQ(outcome.output, "") << arguments;
    EXPECT_EQ(files(), before) << arguments;
  }

  std::filesystem::path work() const { return directory_ / "work"; }

  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(work())) {
      found.push_back(entry.path());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  std::filesystem::path directory_;
};

}  // namespace millrace::cli
