// What is kept, and what is said, when something goes wrong.
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "cli/restarts.h"
#include "program.h"

namespace millrace::cli {
namespace {

namespace fs = std::filesystem;

class SafetyTest : public ProgramTest {
 protected:
  // Three classes of pictures of 12 × 12.
  void make_pictures(const std::string& data) const {
    const std::string command =
        "data synth " + data + " --count 24 --classes 3 --height 12 --width 12 --channels 1";
    for (const char* split : {" --split train", " --split test"}) {
      const bool has_splits = data.starts_with("idx:");
      const Outcome outcome = run(command + (has_splits ? split : ""));
      ASSERT_EQ(outcome.status, 0) << outcome.errors;
      if (!has_splits) break;  // one set is both
    }
  }

  static void flip_byte(const fs::path& path) {
    std::string bytes = read_text(path);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write_text(path, bytes);
  }

  // The first child of a process; empty if there is none.
  static std::string read_children(pid_t process) {
    std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", process));
    std::string first;
    file >> first;
    return first;
  }

  Json json_of(const std::string& file) const { return Json::parse(read_text(work() / file)); }

  const std::string train_ =
      "train --model fashion_cnn --classes 3 --threads-per-device 1 --batch 8 --lr 0.01 --data "
      "idx:set";
};

TEST_F(SafetyTest, DirectoriesOfOutputsAreMadeAndLinksFollowed) {
  make_pictures("idx:set");
  fs::create_symlink("far/metrics.jsonl", work() / "metrics.jsonl");
  const Outcome outcome = run(train_ +
                              " --steps 1 --summary new/deep/summary.json --metrics metrics.jsonl "
                              "--trace traces/run.trace --save-weights /dev/null");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(json_of("new/deep/summary.json")["steps"], 1);
  EXPECT_TRUE(fs::is_symlink(work() / "metrics.jsonl"));
  EXPECT_EQ(split(read_text(work() / "far" / "metrics.jsonl"), '\n').size(), 2U);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  const Outcome report = run("report traces --output shown");
  EXPECT_EQ(report.status, 0) << report.errors;
  EXPECT_NE(read_text(work() / "shown" / "report.md").find("run.trace"), std::string::npos);
}

TEST_F(SafetyTest, NamesThatAreNotUtf8) {
  const std::string odd = "odd\xff\xfe";
  fs::create_directory(work() / odd);
  make_pictures("idx:" + odd + "/set");
  const std::string job =
      "train --model fashion_cnn --classes 3 --threads-per-device 1 --batch 8 "
      "--data idx:" +
      odd + "/set --checkpoint " + odd + "/run --summary " + odd + "/s.json --metrics " + odd +
      "/m.jsonl --steps ";
  for (const char* rest : {"2", "4 --resume"}) {
    const Outcome outcome = run(job + rest);
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
    EXPECT_EQ(outcome.errors, "");  // nothing has changed
  }
  EXPECT_EQ(json_of(odd + "/s.json")["data"], "idx:odd\\xff\\xfe/set");
  for (const std::string& command :
       {"eval --data idx:" + odd + "/set --checkpoint " + odd + "/run --json",
        "ckpt inspect --json " + odd + "/run", "ckpt verify --json " + odd + "/run",
        "ckpt export " + odd + "/run " + odd + "/w.safetensors",
        "data inspect --json idx:" + odd + "/set",
        "report " + odd + " --output " + odd + "/page"}) {
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.status, 0) << command << outcome.errors;
  }
}

TEST_F(SafetyTest, ADamagedCheckpointIsNamedAndTheOneBeforeTaken) {
  make_pictures("idx:set");
  ASSERT_EQ(run(train_ + " --steps 4 --checkpoint run --checkpoint-every 2").status, 0);
  ASSERT_EQ(run("ckpt verify run").status, 0);
  flip_byte(work() / "run" / "step-00000004" / "weights.safetensors");
  const Outcome verified = run("ckpt verify run --json");
  EXPECT_EQ(verified.status, 1);
  const Json found = Json::parse(verified.output);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0]["intact"], true);
  EXPECT_EQ(found[1]["intact"], false);
  for (const char* command :
       {"eval --data idx:set --checkpoint run", "ckpt export run w.safetensors"}) {
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.status, 0) << command << outcome.errors;
    EXPECT_NE(outcome.errors.find("step-00000004"), std::string::npos) << outcome.errors;
  }
  write_text(work() / "run" / "step-00000004" / "manifest.json", "{");
  EXPECT_EQ(run("eval --data idx:set --checkpoint run").status, 0);
  const Outcome resumed = run(train_ + " --steps 5 --checkpoint run --resume");
  EXPECT_EQ(resumed.status, 0) << resumed.errors;
  EXPECT_NE(resumed.errors.find("step-00000004"), std::string::npos) << resumed.errors;
  EXPECT_NE(resumed.output.find("Resumed from 'run/step-00000002'"), std::string::npos);
}

TEST_F(SafetyTest, ADiskWithoutRoomDoesNotEndTheTraining) {
  make_pictures("idx:set");
  ::setenv("LD_PRELOAD", WRITE_FAULTS, 1);
  ::setenv("MILLRACE_FAULT_FREE", "4096", 1);
  const Outcome outcome = run(train_ + " --steps 4 --checkpoint run --checkpoint-every 1");
  ::unsetenv("MILLRACE_FAULT_FREE");
  ::unsetenv("LD_PRELOAD");
  EXPECT_EQ(outcome.status, 1);  // as the last one was not written either
  EXPECT_NE(outcome.errors.find("has 4.00 KiB left"), std::string::npos) << outcome.errors;
  for (int step = 1; step <= 4; ++step) {
    const std::string part = fmt::format("Checkpoint of step {} was not written", step);
    EXPECT_NE(outcome.errors.find(part), std::string::npos) << outcome.errors;
  }
  EXPECT_NE(outcome.output.find("step 4/4"), std::string::npos) << outcome.output;
}

TEST_F(SafetyTest, AnErrorInTheDataSavesACheckpointFirst) {
  make_pictures("ofrecord:set");
  std::string bytes = read_text(work() / "set" / "part-00000");
  bytes.replace(bytes.size() / 2, 60, std::string(60, '\0'));
  write_text(work() / "set" / "part-00000", bytes);
  const std::string job =
      "train --model fashion_cnn --classes 3 --image 12 --threads-per-device 1 --batch 2 --data "
      "ofrecord:set --channels 1 --steps 30 --checkpoint run --seed 1";  // the first batch is good
  const Outcome outcome = run(job);
  EXPECT_EQ(outcome.status, 2) << outcome.errors;
  EXPECT_NE(outcome.errors.find("--on-bad-record"), std::string::npos) << outcome.errors;
  ASSERT_TRUE(fs::exists(work() / "run")) << outcome.output << outcome.errors;
  const Outcome verified = run("ckpt verify run");
  EXPECT_EQ(verified.status, 0) << verified.output;
  const Outcome resumed = run(job + " --resume --on-bad-record skip");
  EXPECT_EQ(resumed.status, 0) << resumed.errors;
}

TEST_F(SafetyTest, FilesThatAreNoImagesAreCounted) {
  make_pictures("folder:set");
  write_text(work() / "set" / "000001" / "a.gif", "x");
  write_text(work() / "set" / "000001" / "b.GIF", "x");
  write_text(work() / "set" / "notes.txt", "x");
  const std::string sentence =
      "3 files are passed over, as images end in .jpg, .jpeg, .png or .webp: 2 .gif, 1 .txt; ";
  const Outcome inspected = run("data inspect folder:set");
  EXPECT_NE(inspected.output.find(sentence), std::string::npos) << inspected.output;
  const Outcome trained =
      run("train --model fashion_cnn --image 12 --channels 1 --batch 8 --steps 1 --data folder:set "
          "--threads-per-device 1");
  EXPECT_EQ(trained.status, 0) << trained.errors;
  EXPECT_NE(trained.errors.find(sentence), std::string::npos) << trained.errors;
}

TEST_F(SafetyTest, TheFirstLineTellsTheMemoryOfEveryStage) {
  const std::string job =
      "train --model fashion_cnn --threads-per-device 1 --oversubscribe --batch "
      "4 --steps 1 ";
  const Outcome one = run(job + "--devices 2");
  EXPECT_NE(one.output.find("of memory on each of 2 devices"), std::string::npos) << one.output;
  const Outcome two = run(job + "--placement 0:0.0:1 --microbatches 2 --schedule gpipe");
  EXPECT_NE(two.output.find("memory by stage "), std::string::npos) << two.output << two.errors;
  EXPECT_NE(two.output.find(" + "), std::string::npos) << two.output;
}

TEST_F(SafetyTest, APlanKnowsTheMemoryOfTheHost) {
  const Outcome small = run("plan --model fashion_cnn --batch 4");
  EXPECT_NE(small.output.find("that this one has.\n"), std::string::npos) << small.output;
  const Outcome large = run("plan --model fashion_cnn --batch 1000000 --json");
  ASSERT_EQ(large.status, 0) << large.errors;
  const Json plan = Json::parse(large.output);
  EXPECT_EQ(plan["host_needs_bytes"].get<int64_t>(),
            plan["devices"][0]["peak_bytes"].get<int64_t>() + (int64_t{32} << 20));
  EXPECT_FALSE(plan["fits_host"].get<bool>());
  EXPECT_GT(plan["host_needs_bytes"].get<int64_t>(), plan["host_memory_bytes"].get<int64_t>());
}

// In a shell, which closes files and makes pipes.
TEST_F(SafetyTest, StandardFilesMayBeClosedOrFull) {
  make_pictures("idx:set");
  const auto status_in_shell = [&](const std::string& command, const std::string& files) {
    const std::string line =
        fmt::format("cd '{}' && {} {} {}", work().string(), MILLRACE_PROGRAM, command, files);
    const int status = std::system(line.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  const std::string job = train_ + " --steps 6 --checkpoint-every 1 --checkpoint ";
  EXPECT_EQ(status_in_shell(job + "all", "<&- >&- 2>&-"), 0);
  EXPECT_EQ(status_in_shell(job + "output", "<&- >&- 2> errors"), 0);
  EXPECT_EQ(read_text(work() / "errors"), "");
  EXPECT_EQ(status_in_shell(job + "full", "> /dev/full 2> errors"), 0);
  EXPECT_NE(read_text(work() / "errors").find("could be written to standard output"),
            std::string::npos);
  EXPECT_EQ(status_in_shell(job + "deaf --max-lr-of-nobody 1", "2>&-"), 2);
  EXPECT_EQ(status_in_shell(job + "deaf --batch 0", "2> /dev/full"), 2);
  for (const char* run_directory : {"all", "output", "full"}) {
    EXPECT_EQ(run(std::string("ckpt verify ") + run_directory).status, 0);
    EXPECT_TRUE(fs::exists(work() / run_directory / "step-00000006")) << run_directory;
  }
  EXPECT_EQ(status_in_shell("ckpt inspect all", "> /dev/full 2> errors"), 1);
  EXPECT_NE(read_text(work() / "errors").find("No space left on device"), std::string::npos);
}

TEST_F(SafetyTest, AJobThatNobodyListensToSavesWhatItHas) {
  make_pictures("idx:set");
  const std::string job =
      fmt::format("cd '{}' && {} {} --steps 100000 --checkpoint run 2> errors | head -n 1 > heard",
                  work().string(), MILLRACE_PROGRAM, train_);
  EXPECT_EQ(std::system(("bash -o pipefail -c \"" + job + "\"").c_str()), 130 << 8);
  EXPECT_NE(read_text(work() / "errors").find("saved in 'run'"), std::string::npos);
  EXPECT_EQ(run("ckpt verify run").status, 0);
}

TEST_F(SafetyTest, AHomeThatCannotBeReadEndsNothing) {
  fs::create_directories(directory_ / "cache");
  write_text(directory_ / "cache" / "millrace", "no directory");
  const Outcome outcome =
      run("train --model fashion_cnn --batch 4 --steps 1 --threads-per-device 1");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
}

TEST_F(SafetyTest, AKilledJobGoesOnByItself) {
  make_pictures("idx:set");
  const std::string length = " --steps 60 --checkpoint-every 5 --keep 20 --quiet --checkpoint ";
  ASSERT_EQ(run(train_ + length + "expected").status, 0);
  const pid_t supervisor = start(train_ + length + "run --restarts 3");
  int killed = 0;
  for (int look = 0; look < 2000 && killed < 2; ++look) {
    ::usleep(5000);
    const auto wanted = work() / "run" / fmt::format("step-{:08}", 10 + 20 * killed);
    if (!fs::exists(wanted)) continue;
    const std::string children = read_children(supervisor);
    if (children.empty()) continue;
    ::kill(std::stoi(children), SIGKILL);
    ++killed;
  }
  const Outcome outcome = wait_for(supervisor);
  EXPECT_EQ(killed, 2);
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_NE(outcome.errors.find("restart 2 of 3"), std::string::npos) << outcome.errors;
  for (const char* file : {"weights.safetensors", "optimizer.safetensors"}) {
    EXPECT_EQ(read_text(work() / "run" / "step-00000060" / file),
              read_text(work() / "expected" / "step-00000060" / file));
  }
}

TEST_F(SafetyTest, RestartsKnowWhenToGiveUp) {
  expect_refusal(train_ + " --steps 1 --restarts 2", "--checkpoint");
  make_pictures("idx:set");
  const Outcome bad =
      run("train --model fashion_cnn --classes 3 --threads-per-device 1 --batch 8 --lr 1e30 --data "
          "idx:set --steps 2 --restarts 5 --checkpoint run");
  EXPECT_EQ(bad.status, 1);
  EXPECT_NE(bad.errors.find("it is not restarted"), std::string::npos) << bad.errors;
}

TEST_F(SafetyTest, RestartsInAFileOfFlags) {
  make_pictures("idx:set");
  write_text(work() / "job.yaml", "restarts: 3\ncheckpoint: run\nsteps: 2\n");
  const Outcome outcome = run(train_ + " --config job.yaml");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_TRUE(fs::exists(work() / "run" / "step-00000002"));
}

TEST_F(SafetyTest, ElasticJobsNeedHostsAndRestarts) {
  const std::string job = train_ + " --steps 1 --checkpoint run --elastic";
  expect_refusal(job, "--restarts");
  expect_refusal(job + " --restarts 1", "--hosts");
  expect_refusal(job + " --restarts 1 --hosts localhost:2 --placement 0:0,1:0", "--placement");
}

TEST_F(SafetyTest, DeepNestingIsRefused) {
  const std::string deep = std::string(2'000'000, '[') + std::string(2'000'000, ']');
  fs::create_directories(work() / "run" / "step-00000001");
  write_text(work() / "run" / "step-00000001" / "manifest.json", "{\"job\":" + deep + "}");
  write_text(work() / "metrics.jsonl", "{\"step\":1,\"loss\":" + deep + "}\n");
  write_text(work() / "summary.json", "{\"devices\":[1],\"model\":" + deep + "}");
  EXPECT_EQ(run("ckpt inspect run").status, 0);  // it tells which are damaged
  EXPECT_EQ(run("ckpt verify run").status, 1);
  EXPECT_EQ(run("report metrics.jsonl -o page").status, 2);
  EXPECT_EQ(run("report summary.json -o page").status, 2);
}

TEST(Restarts, ArgumentsOfARun) {
  using Words = std::vector<std::string>;
  const Words given = {"train", "--restarts", "3", "--steps", "5"};
  EXPECT_EQ(arguments_of_run(given, true), (Words{"train", "--steps", "5"}));
  EXPECT_EQ(arguments_of_run(given, false), (Words{"train", "--steps", "5", "--resume"}));
  EXPECT_EQ(arguments_of_run({"--restarts=3", "--resume"}, false), (Words{"--resume"}));
}

}  // namespace
}  // namespace millrace::cli
