#include "passes/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "graph_facts.h"
#include "passes/fusion.h"
#include "passes/inference.h"

namespace millrace::passes {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class Pipeline : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    directory_ = std::filesystem::temp_directory_path() /
                 ("millrace_pipeline_" + std::to_string(getpid()) + "_" + test->name());
    std::filesystem::remove_all(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::filesystem::path directory_;
};

TEST_F(Pipeline, RunsInOrderAndWritesTheGraphAfterEachPass) {
  graph::Graph graph = small_residual_network();
  std::vector<std::string> ran;
  PassPipeline pipeline;
  pipeline.add("fusion", [&](graph::Graph& g) {
    ran.push_back("fusion");
    fuse(g);
  });
  pipeline.add("inference", [&](graph::Graph& g) {
    ran.push_back("inference");
    make_inference(g);
  });
  pipeline.run(graph, {.dump_directory = directory_ / "deep"});
  EXPECT_THAT(ran, ElementsAre("fusion", "inference"));

  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory_ / "deep")) {
    files.push_back(entry.path().filename().string());
  }
  EXPECT_THAT(files, testing::UnorderedElementsAre("00-input.txt", "00-input.dot", "01-fusion.txt",
                                                   "01-fusion.dot", "02-inference.txt",
                                                   "02-inference.dot"));
  EXPECT_THAT(read_text(directory_ / "deep/00-input.txt"), HasSubstr("= relu("));
  EXPECT_THAT(read_text(directory_ / "deep/01-fusion.txt"), Not(HasSubstr("= relu(")));
  EXPECT_THAT(read_text(directory_ / "deep/01-fusion.txt"), Not(HasSubstr("inference=true")));
  EXPECT_EQ(read_text(directory_ / "deep/02-inference.txt"), graph::to_text(graph));
  EXPECT_EQ(read_text(directory_ / "deep/02-inference.dot"), graph::to_graphviz(graph));
}

TEST_F(Pipeline, WritesNothingWithoutADirectory) {
  graph::Graph graph = small_residual_network();
  PassPipeline pipeline;
  pipeline.add("fusion", fuse);
  pipeline.run(graph);
  EXPECT_FALSE(std::filesystem::exists(directory_));
  EXPECT_EQ(count_types(graph).count("relu"), 0u);
}

TEST_F(Pipeline, PassThatBreaksTheGraphIsNamedAndTheNextDoesNotRun) {
  graph::Graph graph = small_residual_network();
  PassPipeline pipeline;
  bool ran = false;
  pipeline.add("fusion", fuse);
  pipeline.add("reversal", [](graph::Graph& g) {
    g.set_order(std::vector<graph::OperatorId>(g.order().rbegin(), g.order().rend()));
  });
  pipeline.add("later", [&](graph::Graph&) { ran = true; });
  try {
    pipeline.run(graph);
    FAIL() << "no error";
  } catch (const std::logic_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("after pass 'reversal'"));
  }
  EXPECT_FALSE(ran);
}

TEST_F(Pipeline, DirectoryThatCannotBeMadeIsAnInputError) {
  write_text(directory_, "a file");
  graph::Graph graph = small_residual_network();
  EXPECT_THROW(PassPipeline().run(graph, {.dump_directory = directory_ / "below"}), InputError);
}

}  // namespace
}  // namespace millrace::passes
