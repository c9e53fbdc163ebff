// A flag that does nothing is refused with what it needs; one that holds anyway is not.
#include "cli/flag_effects.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <CLI/Config.hpp>
#include <algorithm>
#include <map>
#include <set>

#include "cli/command.h"
#include "cli/interruption.h"
#include "graph/optimizers.h"
#include "program.h"

namespace millrace::cli {
namespace {

using ::testing::HasSubstr;

// The whole program, parsed but not run.
class FlagEffectsTest : public ::testing::Test {
 protected:
  FlagEffectsTest() {
    add_train_command(program_, chosen_, nullptr, interruption_);
    add_plan_command(program_, chosen_, nullptr);
    add_profile_command(program_, chosen_, nullptr);
    add_tune_command(program_, chosen_, interruption_);
    add_eval_command(program_, chosen_);
    add_predict_command(program_, chosen_);
    add_embed_command(program_, chosen_);
    add_verify_command(program_, chosen_);
    add_data_command(program_, chosen_, interruption_);
    add_ckpt_command(program_, chosen_);
    add_bench_command(program_, chosen_, nullptr, interruption_);
    add_report_command(program_, chosen_);
  }

  static std::string name_of(const CLI::App* command) {
    std::string name = command->get_name();
    for (command = command->get_parent(); command->get_parent() != nullptr;
         command = command->get_parent()) {
      name = command->get_name() + " " + name;
    }
    return name;
  }

  // What the rules say of a command line; empty if they let it pass.
  std::string complaint(const std::string& line) {
    std::vector<std::string> words = split(line, ' ');
    std::reverse(words.begin(), words.end());
    program_.clear();
    program_.parse(words);
    const CLI::App* command = &program_;
    while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
    try {
      require_effects(*command, flag_rules(name_of(command)));
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }

  CLI::App program_{"", "millrace"};
  Action chosen_;
  Interruption interruption_;
};

TEST_F(FlagEffectsTest, AFlagInVainIsRefusedWithWhatItNeeds) {
  const std::vector<std::pair<const char*, const char*>> refusals = {
      {"train --margin 0.5", "--margin has no effect without --head."},
      {"train --scale 64", "--scale has no effect without --head."},
      {"train --head-parallel mp", "--head-parallel has no effect without --head."},
      {"train --head-gradient exact", "without --head"},
      {"train --head-dtype bf16", "without --head"},
      {"train --mixup 0.2", "--mixup has no effect without a data set"},
      {"train --sampler balanced", "--sampler has no effect without a data set"},
      {"train --class-weights balanced", "--class-weights has no effect without a data set"},
      {"train --freeze-norms --sync-batch-norm --devices 2", "beside --freeze-norms"},
      {"train --sample-rate 0.1", "without --head and --head-parallel pfc"},
      {"train --head arcface --sample-rate 0.1", "--head-parallel pfc"},
      {"train --head arcface --head-parallel mp --sample-rate 0.1", "--head-parallel pfc"},
      {"train --plan p.json --placement 0:0", "--placement has no effect beside --plan"},
      {"train --plan p.json --devices 2", "beside --plan"},
      {"train --plan p.json --parallel data", "beside --plan"},
      {"train --plan p.json --schedule gpipe", "beside --plan"},
      {"train --plan p.json --microbatches 2", "beside --plan"},
      {"train --plan p.json --replicas split", "beside --plan"},
      {"train --plan p.json --cut-after fc", "beside --plan"},
      {"train --plan p.json --stage-weights 1:1", "beside --plan"},
      {"train --plan p.json --sync-batch-norm", "beside --plan"},
      {"train --plan p.json --share-optimizer", "beside --plan"},
      {"train --static-scheduling off", "without --schedule ssp"},
      {"train --schedule 1f1b --static-scheduling on", "without --schedule ssp"},
      {"train --optimizer adamw --nesterov", "without --optimizer sgd."},
      {"train --optimizer lars --nesterov", "without --optimizer sgd."},
      {"train --optimizer adamw --momentum 0.9", "without --optimizer sgd, lars or rmsprop."},
      {"train --adam-beta1 0.9", "without --optimizer adamw or lamb."},
      {"train --adam-beta2 0.9", "without --optimizer adamw, lamb or rmsprop."},
      {"train --optimizer lars --adam-epsilon 1e-6", "without --optimizer adamw, lamb or rmsprop."},
      {"train --lars-trust 0.01", "without --optimizer lars."},
      {"train --lr-milestones 3,4", "without --lr-schedule step"},
      {"train --lr-schedule cosine --lr-gamma 0.1", "without --lr-schedule step"},
      {"train --lr-power 1", "without --lr-schedule polynomial"},
      {"train --lr-schedule step --lr-final 0.1", "cosine or polynomial"},
      {"train --loss-scale-window 5", "without --loss-scale dynamic"},
      {"train --loss-scale 8 --loss-scale-min 1", "without --loss-scale dynamic"},
      {"train --precision bf16 --loss-scale-max 16", "without --loss-scale dynamic"},
      {"train --precision-arithmetic storage", "without --precision fp16 or bf16"},
      {"train --precision-keep fc", "without --precision fp16 or bf16"},
      {"train --augment none", "without a data set"},
      {"train --label-offset 1", "without a data set"},
      {"train --on-bad-record skip", "without a data set"},
      {"train --keep 3", "without --checkpoint"},
      {"train --checkpoint-every 3", "without --checkpoint"},
      {"train --resume", "without --checkpoint"},
      {"train --eval-every 3", "without --eval-data, --valid-share or --eval-verification"},
      {"train --patience 3", "without --eval-data, --valid-share or --eval-verification"},
      {"train --metric loss", "without --eval-data, --valid-share or --eval-verification"},
      {"train --new-layers auto",
       "--new-layers has no effect without --load-weights or --model onnx:FILE."},
      {"plan --auto --placement 0:0", "beside --auto, which searches"},
      {"plan --auto --plan p.json", "beside --auto"},
      {"plan --auto --microbatches 2", "beside --auto"},
      {"plan --global-batch 8", "without --auto"},
      {"plan --cluster titanv-8 --allow-stale", "without --auto"},
      {"plan --cluster titanv-8 --placement 0:0 --devices 2", "beside --placement"},
      {"plan --cluster titanv-8 --threads-per-device 2", "on a described cluster"},
      {"plan --cluster titanv-8 --sync-batch-norm", "on a described cluster"},
      {"plan --cluster titanv-8 --recompute cheap", "knows none and all"},
      {"plan --auto --head arcface --head-parallel dp --sample-rate 0.1", "--head-parallel pfc"},
      {"plan --check --output p.json", "beside --check or --predict"},
      {"plan --predict --bandwidth 1e9", "beside --check or --predict"},
      {"plan --rounds 3", "without a measurement"},
      {"plan --predict --profile p.json --rounds 3", "without a measurement"},
      {"plan --cluster titanv-8 --auto --finalists 3", "without --auto on this machine"},
      {"plan --auto --no-measure --finalists 3", "beside --no-measure"},
      {"plan --run d", "without --check or --predict"},
      {"profile --machine --model resnet18", "beside --machine"},
      {"profile --machine --rounds 3", "beside --machine"},
      {"profile --json --top 3", "beside --json"},
      {"profile --json --format pipedream", "without --output"},
      {"profile --optimizer adamw --nesterov", "without --optimizer sgd."},
      {"eval --verification p.bin --data idx:d run", "which name their own images"},
      {"eval --identification folder:d --classes 3 run", "which name their own images"},
      {"eval --verification p.bin --augment photo run", "without a data set"},
      {"data synth folder:d --identities 3", "without --faces"},
      {"data synth folder:d --new-people", "without --faces"},
      {"data synth recordio:d.rec --faces --count 3", "beside --faces"},
      {"data synth recordio:d.rec --faces --pairs 0 --new-people", "with --pairs 0"},
      {"data synth recordio:d.rec --part-size 1MiB", "ofrecord:"},
      {"data synth folder:d --split test", "idx:"},
      {"data convert idx:d recordio:d.rec --part-size 1MiB", "ofrecord:"},
      {"data inspect recordio:d.rec --split test", "without parts"},
      {"data verify raw:d --split test", "without parts"},
      {"bench single --no-peer --peer-script s.py", "beside --no-peer"},
      {"bench head --peer-update dense", "without --peer"},
      {"bench head --modes mp,dp --sample-rate 0.1", "without pfc"},
      {"bench published --no-runs --steps 3", "beside --no-runs"},
      {"bench published --cross --rows 1", "beside --cross"},
      {"tune --optimizer adamw --nesterov", "without --optimizer sgd."},
      {"tune --model vgg16 --conv-algo direct", "measures every way"},
      {"bench steps --nesterov --optimizer adamw", "without --optimizer sgd."}};
  for (const auto& [line, part] : refusals) EXPECT_THAT(complaint(line), HasSubstr(part)) << line;
}

TEST_F(FlagEffectsTest, WhatWorksOrHoldsAnywayPasses) {
  for (const char* line :
       {"train --model resnet18 --steps 1 --workers 3",
        "train --devices 1 --schedule gpipe --replicas roundrobin --microbatches 1 --parallel data",
        "train --devices 1 --sync-batch-norm --share-optimizer --comm-dtype bf16 --placement 0:0",
        "train --head arcface --margin 0.5 --scale 64 --head-parallel pfc --sample-rate 0.1",
        "train --schedule ssp --static-scheduling off",
        "train --nesterov --momentum 0.8",
        "train --optimizer adamw --adam-beta1 0.8",
        "train --optimizer lars --lars-trust 0.1",
        "train --lr-schedule step --lr-milestones 3 --lr-gamma 0.5",
        "train --lr-schedule polynomial --lr-power 2 --lr-final 0.1",
        "train --precision fp16 --loss-scale-window 10",
        "train --loss-scale 1",
        "train --comm-dtype fp16 --loss-scale-min 2",
        "train --precision-arithmetic auto",
        "train --data idx:d --workers 3 --augment none --label-offset 1",
        "train --eval-data idx:d --workers 3",
        "tune --all --image 64 --conv-algo auto",
        "train --checkpoint c --keep 3 --resume",
        "train --plan p.json --batch 4 --precision bf16",
        "plan --model vgg16 --workers 3 --lr 0.1 --steps 3",
        "plan --cluster titanv-8 --head-parallel pfc --sample-rate 0.1",
        "plan --cluster titanv-8 --as oneflow --static-scheduling off",
        "plan --auto --head arcface --sample-rate 0.1",
        "plan --auto --cluster here --threads-per-device 1 --conv-algo direct --rounds 3",
        "plan --auto --schedule gpipe --share-optimizer --recompute none --devices 2",
        "plan --auto --profile p.txt --workers 4 --bandwidth 1e9",
        "plan --predict --rounds 3",
        "profile --machine --devices 2 --json",
        "profile --json --format pipedream --output f",
        "eval --verification p.bin run",
        "eval --data folder:d --workers 3 --classes 4 run",
        "eval --identification folder:d --workers 3 run",
        "data synth recordio:d.rec --faces --pairs 0 --seed 3 --quality 80",
        "data synth ofrecord:d --part-size 1MiB",
        "data convert idx:d folder:e --split test",
        "bench head --peer --peer-update dense --peer-python p --sample-rate 0.1",
        "bench published --cross",
        "report run -o out --steps 3"}) {
    EXPECT_EQ(complaint(line), "") << line;
  }
}

// A rule for a flag that does not exist would never speak.
TEST_F(FlagEffectsTest, EveryOptimizerTakesItsOwnSettings) {
  for (const graph::OptimizerDefinition& row : graph::optimizers()) {
    for (const std::string_view setting : row.settings) {
      std::string flag(setting);
      std::replace(flag.begin(), flag.end(), '_', '-');
      const std::string value = flag == "nesterov" ? "" : " 0.5";
      const std::string line = fmt::format("train --optimizer {} --{}{}", row.name, flag, value);
      EXPECT_EQ(complaint(line), "") << line;
    }
  }
}

TEST_F(FlagEffectsTest, RulesNameFlagsThatExist) {
  std::map<std::string, bool> known;
  for (const char* name :
       {"train", "plan", "profile", "tune", "eval", "data synth", "data convert", "data inspect",
        "data verify", "bench steps", "bench single", "bench head", "bench published"}) {
    const CLI::App* command = &program_;
    for (const std::string& word : split(name, ' ')) command = command->get_subcommand(word);
    const std::vector<FlagRule> rules = flag_rules(name);
    EXPECT_FALSE(rules.empty()) << name;
    for (const FlagRule& rule : rules) {
      const bool all_but = rule.flags.starts_with('!');
      for (const std::string& flag : split(rule.flags.substr(all_but ? 1 : 0), ' ')) {
        bool& found = known[flag + " (" + std::string(rule.otherwise) + ")"];
        found = found || command->get_option_no_throw(flag) != nullptr;
      }
    }
  }
  for (const auto& [flag, found] : known) EXPECT_TRUE(found) << flag;
}

class FlagRangesTest : public ProgramTest {};

TEST_F(FlagRangesTest, NumbersOutOfRangeAreRefused) {
  const std::string train = "train --model fashion_cnn --steps 1 ";
  for (const char* flags : {"--optimizer adamw --adam-beta1 1",
                            "--optimizer adamw --adam-beta2 1",
                            "--optimizer adamw --adam-epsilon 0",
                            "--momentum 1",
                            "--momentum -0.1",
                            "--optimizer lars --lars-trust 0",
                            "--weight-decay -1",
                            "--clip-norm -1",
                            "--label-smoothing 1.5",
                            "--lr -1",
                            "--lr 1e300",
                            "--lr-schedule cosine --lr-final -1",
                            "--lr-schedule step --lr-milestones -3",
                            "--lr-schedule step --lr-milestones 3 --lr-gamma 0",
                            "--lr-schedule polynomial --lr-power 0",
                            "--lr-warmup-steps -1",
                            "--loss-scale 0",
                            "--loss-scale dynamic --loss-scale-window 0",
                            "--loss-scale dynamic --loss-scale-min 0",
                            "--batch 0",
                            "--batch 9000000000000000000",
                            "--classes 0",
                            "--image 0",
                            "--channels 0",
                            "--devices -1",
                            "--devices 1000000000",
                            "--microbatches -1",
                            "--threads-per-device -1",
                            "--steps 9000000000000000000",
                            "--seed -1",
                            "--data idx:/usr/share/datasets/fashion-mnist --workers 0",
                            "--checkpoint c --keep 0",
                            "--stage-weights 0:1"}) {
    const std::vector<std::string> words = split(flags, ' ');
    expect_refusal(train + flags, words[words.size() - 2]);
  }
  const std::string head = "train --model iresnet18 --image 32 --steps 1 --batch 2 --head ";
  expect_refusal(head + "arcface --margin 9", "--margin has m2 = 9");
  expect_refusal(head + "cosface --margin 9", "--margin has m3 = 9");
  expect_refusal(head + "combined --margin -1,0,0", "--margin has m1 = -1");
  expect_refusal("plan --auto --model vgg16 --cluster titanv-8 --global-batch -3",
                 "--global-batch");
  expect_refusal("bench single --threads 0", "--threads");
  expect_refusal("report run -o out --first-step -4", "--first-step");
}

}  // namespace
}  // namespace millrace::cli
