// Descriptions of machines hold for the machine that was measured.
#include "profile/machine.h"

#include <gmock/gmock.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"

namespace millrace::profile {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Warnings : public train::TrainingObserver {
 public:
  void on_message(train::Severity severity, std::string_view sentence) override {
    if (severity == train::Severity::warning) list.emplace_back(sentence);
  }
  std::vector<std::string> list;
};

class KeptMachineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::path(::testing::TempDir()) / "millrace-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    ::setenv("XDG_CACHE_HOME", pattern.c_str(), 1);
    std::filesystem::create_directories(machine_path().parent_path());
  }
  void TearDown() override {
    ::unsetenv("XDG_CACHE_HOME");
    std::filesystem::remove_all(directory_);
  }

  std::filesystem::path directory_;
};

TEST_F(KeptMachineTest, AnotherMachineIsNotTakenForThisOne) {
  Warnings warnings;
  const simulate::Cluster measured = cluster_here(warnings);
  EXPECT_THAT(warnings.list, ElementsAre());
  Json file = Json::parse(read_text(machine_path()));
  Json own = file["machines"].at(machine_identity());
  own["name"] = "elsewhere";
  write_text(machine_path(),
             Json{{"version", file["version"]}, {"machines", {{"host far away", own}}}}.dump());
  EXPECT_EQ(cluster_here(warnings).name, measured.name);
  EXPECT_THAT(warnings.list, ElementsAre(HasSubstr("describes another machine (host far away)")));

  // Both are kept, and each is found again.
  file = Json::parse(read_text(machine_path()));
  EXPECT_EQ(file["machines"].size(), 2u);
  file["machines"][machine_identity()]["name"] = "kept";
  write_text(machine_path(), file.dump());
  EXPECT_EQ(cluster_here(warnings).name, "kept");
  EXPECT_EQ(warnings.list.size(), 1u);
}

TEST_F(KeptMachineTest, AFileThatNamesNoMachineIsMeasuredAgain) {
  Warnings warnings;
  write_text(machine_path(), "{\"name\": \"anything\"}");
  EXPECT_EQ(cluster_here(warnings).name, "this-machine-measured");
  EXPECT_THAT(warnings.list, ElementsAre(HasSubstr("does not say which machine")));
}

TEST_F(KeptMachineTest, TheIdentityNamesHostProcessorAndVersions) {
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof(host) - 1), 0);
  EXPECT_THAT(machine_identity(), HasSubstr(host));
  EXPECT_THAT(machine_identity(), HasSubstr("oneDNN"));
  EXPECT_THAT(machine_identity(), HasSubstr("cores"));
}

}  // namespace
}  // namespace millrace::profile
