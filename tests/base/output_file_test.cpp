#include "base/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/line_file.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::path(::testing::TempDir()) / "millrace-output-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      found.push_back(entry.path().filename().string());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  fs::path directory_;
};

TEST_F(OutputFileTest, FollowsLinksAlsoToWhereNothingIs) {
  fs::create_directory(directory_ / "far");
  fs::create_symlink("far/file", directory_ / "second");
  fs::create_symlink("second", directory_ / "first");
  for (const char* text : {"new", "newer"}) {
    write_text(directory_ / "first", text);
    EXPECT_TRUE(fs::is_symlink(directory_ / "first"));
    EXPECT_TRUE(fs::is_symlink(directory_ / "second"));
    EXPECT_EQ(read_text(directory_ / "far" / "file"), text);
  }
  fs::create_symlink("circle", directory_ / "circle");
  EXPECT_THROW(write_text(directory_ / "circle", ""), InputError);
}

TEST_F(OutputFileTest, WritesThroughPipesAndDevices) {
  const fs::path pipe = directory_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  require_writable(pipe, "--summary");  // does not wait for a reader
  std::string heard;
  std::thread reader([&] {
    const int end = ::open(pipe.c_str(), O_RDONLY);
    char letters[16];
    for (ssize_t count; (count = ::read(end, letters, sizeof(letters))) > 0;) {
      heard.append(letters, static_cast<size_t>(count));
    }
    ::close(end);
  });
  write_text(pipe, "through");
  reader.join();
  EXPECT_EQ(heard, "through");
  EXPECT_TRUE(fs::is_fifo(pipe));
  require_writable("/dev/null", "--summary");
  write_text("/dev/null", "nothing");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  const int file = ::open((directory_ / "opened").c_str(), O_RDWR | O_CREAT, 0600);
  write_text(fmt::format("/proc/self/fd/{}", file), "descriptor");
  char letters[16] = {};
  EXPECT_EQ(::pread(file, letters, sizeof(letters), 0), 10);  // not a file that took its name
  ::close(file);
}

TEST_F(OutputFileTest, KeepsPermissionsAndTakesNewOnesFromTheMask) {
  const mode_t before = ::umask(027);
  write_text(directory_ / "fresh", "a");
  const auto mode = [&](const char* name) {
    struct stat status = {};
    ::stat((directory_ / name).c_str(), &status);
    return status.st_mode & 07777;
  };
  EXPECT_EQ(mode("fresh"), 0640U);
  ::chmod((directory_ / "fresh").c_str(), 0604);
  write_text(directory_ / "fresh", "b");
  EXPECT_EQ(mode("fresh"), 0604U);
  ::umask(before);
}

TEST_F(OutputFileTest, TemporaryOfAPrivateFileIsPrivate) {
  write_text(directory_ / "secret", "a");
  ::chmod((directory_ / "secret").c_str(), 0600);
  OutputFile file(directory_ / "secret");
  for (const std::string& name : names()) {
    struct stat status = {};
    ::stat((directory_ / name).c_str(), &status);
    EXPECT_EQ(status.st_mode & 077, 0U) << name;
  }
}

TEST_F(OutputFileTest, TakesNamesOfAnyBytesAndOfFullLength) {
  for (const std::string& name :
       {std::string("\xff\xfe \n'\"%s"), std::string(255, 'n'), std::string("-")}) {
    require_writable(directory_ / name, "--summary");
    write_text(directory_ / name, name);
    EXPECT_EQ(read_text(directory_ / name), name);
  }
  EXPECT_EQ(names().size(), 3U);
  EXPECT_THROW(write_text(directory_ / "", "x"), InputError);
  EXPECT_THROW(write_text(directory_, "x"), InputError);
  EXPECT_THROW(write_text("", "x"), InputError);
}

TEST_F(OutputFileTest, RemovesWhatAKilledWriterLeft) {
  write_text(directory_ / "file", "old");
  const pid_t child = ::fork();
  if (child == 0) {
    OutputFile file(directory_ / "file");
    file.write("half");
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(names().size(), 2U);
  EXPECT_EQ(read_text(directory_ / "file"), "old");
  write_text(directory_ / "file", "new");
  EXPECT_EQ(names(), std::vector<std::string>{"file"});
  EXPECT_EQ(read_text(directory_ / "file"), "new");
}

TEST_F(OutputFileTest, WritersAtTheSameTimeDoNotMix) {
  {
    OutputFile first(directory_ / "file");
    OutputFile second(directory_ / "file");
    first.write("one");
    second.write("two");
    second.commit();
    EXPECT_EQ(read_text(directory_ / "file"), "two");
    first.commit();
    EXPECT_EQ(read_text(directory_ / "file"), "one");
  }
  EXPECT_EQ(names(), std::vector<std::string>{"file"});
}

TEST_F(OutputFileTest, ChecksMakeTheDirectoriesAbove) {
  require_writable(directory_ / "a" / "b" / "file", "--summary");
  EXPECT_TRUE(fs::is_empty(directory_ / "a" / "b"));
  write_text(directory_ / "plain", "");
  try {
    require_writable(directory_ / "plain" / "file", "--summary");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()).rfind("--summary: ", 0), 0U) << error.what();
  }
}

TEST_F(OutputFileTest, ReplacesADirectoryInOneMoment) {
  for (const char* name : {"made", "target"}) {
    fs::create_directory(directory_ / name);
    write_text(directory_ / name / "file", name);
  }
  replace_directory(directory_ / "made", directory_ / "target", directory_ / "former");
  EXPECT_EQ(read_text(directory_ / "target" / "file"), "made");
  EXPECT_EQ(read_text(directory_ / "former" / "file"), "target");
  EXPECT_FALSE(fs::exists(directory_ / "made"));
}

TEST_F(OutputFileTest, LinesThatDoNotFitAreTriedAgain) {
  LineFile lines(directory_ / "lines", "kept\n");
  lines.add("one");
  struct rlimit before = {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto ignored = ::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = before;
  small.rlim_cur = 12;  // "kept\none\n" has 9 bytes, so of "two" a part would fit
  ::setrlimit(RLIMIT_FSIZE, &small);
  lines.add("two two");
  EXPECT_NE(lines.failure(), "");
  EXPECT_EQ(read_text(directory_ / "lines"), "kept\none\n");
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, ignored);
  lines.add("three");
  EXPECT_EQ(lines.failure(), "");
  EXPECT_EQ(read_text(directory_ / "lines"), "kept\none\ntwo two\nthree\n");
}

}  // namespace
}  // namespace millrace
