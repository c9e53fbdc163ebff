#include "cli/elastic.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "cli/restarts.h"

namespace millrace::cli {
namespace {

using Words = std::vector<std::string>;

int64_t samples(const ElasticJob& job) {
  int64_t ranks = 0;
  for (const HostRanks& host : job.hosts) ranks += host.ranks;
  return ranks * job.devices * job.batch;
}

TEST(Elastic, HostsAreReadAndWritten) {
  EXPECT_EQ(hosts_text(parse_hosts("a:2,b")), "a:2,b:1");
  EXPECT_THROW(parse_hosts("a,"), InputError);
}

TEST(Elastic, AJobThatLostNothingStaysAsItIs) {
  const ElasticJob job = {{{"a", 2}, {"b", 2}}, 4, 1};
  const ElasticJob share = share_over(job, job.hosts);
  EXPECT_EQ(share.hosts, job.hosts);
  EXPECT_EQ(share.batch, 4);
  EXPECT_EQ(describe_share(job, job.hosts, share), "");
}

TEST(Elastic, TheSamplesOfAStepStay) {
  const ElasticJob job = {{{"a", 2}, {"b", 2}, {"c", 1}}, 12, 2};  // 120 samples
  const std::vector<std::vector<HostRanks>> cases = {
      {{"a", 2}}, {{"b", 2}, {"c", 1}}, {{"a", 2}, {"b", 2}}, {{"c", 1}}};
  for (const auto& there : cases) {
    const ElasticJob share = share_over(job, there);
    EXPECT_EQ(samples(share), samples(job)) << hosts_text(there);
    EXPECT_EQ(share.hosts, there);
  }
}

TEST(Elastic, RanksThatTheSamplesDoNotDivideOverAreLeftOut) {
  const ElasticJob job = {{{"a", 2}, {"b", 1}, {"c", 1}}, 4, 1};  // 16 samples, 3 ranks left
  const std::vector<HostRanks> there = {{"a", 2}, {"c", 1}};
  const ElasticJob share = share_over(job, there);
  EXPECT_EQ(share.hosts, (std::vector<HostRanks>{{"a", 2}}));
  EXPECT_EQ(share.batch, 8);
  EXPECT_EQ(describe_share(job, there, share),
            "host b does not answer, 2 of 4 ranks go on with --batch 8");
}

TEST(Elastic, ArgumentsOfAShare) {
  const ElasticJob share = {{{"a", 2}}, 8, 1};
  EXPECT_EQ(arguments_of_share({"train", "--batch", "4", "--hosts=a:2,b:2", "--quiet"}, share),
            (Words{"train", "--quiet", "--hosts=a:2", "--batch=8"}));
}

TEST(Elastic, ThisHostAnswersWithoutBeingAsked) {
  const std::atomic<bool> stop = true;  // nobody is waited for
  const std::vector<HostRanks> there =
      hosts_that_answer({{"localhost", 2}, {"127.0.0.1", 1}}, 0.1, stop);
  EXPECT_EQ(hosts_text(there), "localhost:2,127.0.0.1:1");
}

TEST(Elastic, ARunIsNotRestartedByItself) {
  EXPECT_EQ(arguments_of_run({"train", "--elastic", "--restarts=3"}, true), (Words{"train"}));
  // Flags of a file are taken back.
  EXPECT_EQ(
      arguments_of_run({"train", "--config", "job.yaml"}, false),
      (Words{"train", "--config", "job.yaml", "--restarts=0", "--elastic=false", "--resume"}));
}

}  // namespace
}  // namespace millrace::cli
