// The table of flags that mean something only beside others. A flag that asks for what holds anyway
// (a schedule for one stage, parts for each of one device) works: scripts pass it for any number of
// devices.
#include <algorithm>
#include <span>

#include "cli/flag_effects.h"
#include "cli/flag_names.h"
#include "graph/optimizers.h"

namespace millrace::cli {
namespace {

using Flags = const GivenFlags&;

// `plan` on machines of which only a description is known.
bool is_described(Flags flags) {
  const bool here = flags.is("--cluster", {"", "here", "this-machine"});
  const bool measured =
      flags.given("--auto") && here && flags.is("--as", {"millrace"}) && !flags.given("--profile");
  return (flags.given("--cluster") || flags.given("--auto")) && !measured;
}

bool is_measured(Flags flags) { return flags.given("--check") || flags.given("--predict"); }

bool searches_here(Flags flags) { return flags.given("--auto") && !is_described(flags); }

bool has_head(Flags flags) {
  return flags.given("--head") || (is_described(flags) && flags.given("--head-parallel"));
}

bool is_sampled(Flags flags) {
  const bool tried =
      flags.given("--auto") && flags.given("--head") && !flags.given("--head-parallel");
  return tried || (has_head(flags) && flags.is("--head-parallel", {"pfc"}));
}

bool has_dynamic_scale(Flags flags) {
  if (flags.given("--loss-scale")) return flags.is("--loss-scale", {"dynamic"});
  return flags.is("--precision", {"fp16"}) || flags.is("--comm-dtype", {"fp16"});
}

bool is_half(Flags flags) { return flags.is("--precision", {"fp16", "bf16"}); }

bool has_ssp(Flags flags) {
  const bool habit = !flags.given("--schedule") && flags.is("--as", {"oneflow"});
  return flags.is("--schedule", {"ssp"}) || habit;
}

bool reads_data(Flags flags) {
  const bool evaluates = flags.given("--eval-data") && !flags.is("--eval-data", {"synthetic"});
  return evaluates || !flags.is("--data", {"synthetic"});
}

bool measures_faces(Flags flags) {
  return flags.given("--verification") || flags.given("--identification");
}

bool names_format(Flags flags, std::string_view place, std::string_view format) {
  return flags.value(place).starts_with(std::string(format) + ":");
}

bool has_splits(Flags flags) {
  for (const char* place : {"data", "from", "to"}) {
    for (const char* format : {"ofrecord", "folder", "idx"}) {
      if (names_format(flags, place, format)) return true;
    }
  }
  return false;
}

constexpr std::string_view kOptimizer = "without --optimizer ";

bool optimizer_has(Flags flags, std::string_view flag) {
  const std::string setting = setting_of(flag);
  for (const graph::OptimizerDefinition& row : graph::optimizers()) {
    const auto& known = row.settings;
    if (std::find(known.begin(), known.end(), setting) == known.end()) continue;
    if (flags.is("--optimizer", {row.name})) return true;
  }
  return false;
}

std::string optimizers_with(std::string_view flag) {
  return graph::optimizer_names(setting_of(flag));
}

// Of every command that takes a job.
constexpr FlagRule kJob[] = {
    {"--devices --placement --parallel --sync-batch-norm --share-optimizer --stage-weights "
     "--cut-after --schedule --static-scheduling --microbatches --replicas",
     [](Flags flags) { return !flags.given("--plan"); }, "beside --plan, which says all of that"},
    {"--static-scheduling", has_ssp, "without --schedule ssp"},
    {"--margin --scale --head-gradient --head-parallel --head-dtype --head-filter", has_head,
     "without --head"},
    {"--sync-batch-norm", [](Flags flags) { return !flags.given("--freeze-norms"); },
     "beside --freeze-norms, which leaves no statistics to share"},
    {"--clip-backbone", [](Flags flags) { return flags.given("--clip-norm"); },
     "without --clip-norm"},
    {"--sample-rate --head-momentum", is_sampled, "without --head and --head-parallel pfc"},
    {"--momentum", [](Flags flags) { return optimizer_has(flags, "--momentum"); }, kOptimizer,
     optimizers_with},
    {"--nesterov", [](Flags flags) { return optimizer_has(flags, "--nesterov"); }, kOptimizer,
     optimizers_with},
    {"--adam-beta1", [](Flags flags) { return optimizer_has(flags, "--adam-beta1"); }, kOptimizer,
     optimizers_with},
    {"--adam-beta2", [](Flags flags) { return optimizer_has(flags, "--adam-beta2"); }, kOptimizer,
     optimizers_with},
    {"--adam-epsilon", [](Flags flags) { return optimizer_has(flags, "--adam-epsilon"); },
     kOptimizer, optimizers_with},
    {"--lars-trust", [](Flags flags) { return optimizer_has(flags, "--lars-trust"); }, kOptimizer,
     optimizers_with},
    {"--lr-milestones --lr-gamma", [](Flags flags) { return flags.is("--lr-schedule", {"step"}); },
     "without --lr-schedule step"},
    {"--lr-power", [](Flags flags) { return flags.is("--lr-schedule", {"polynomial"}); },
     "without --lr-schedule polynomial"},
    {"--lr-final",
     [](Flags flags) {
       return flags.is("--lr-schedule", {"cosine", "polynomial"});
     },
     "without --lr-schedule cosine or polynomial"},
    {"--loss-scale-window --loss-scale-min --loss-scale-max", has_dynamic_scale,
     "without --loss-scale dynamic"},
    {"--precision-arithmetic",
     [](Flags flags) { return is_half(flags) || flags.is("--precision-arithmetic", {"auto"}); },
     "without --precision fp16 or bf16"},
    {"--precision-keep", is_half, "without --precision fp16 or bf16"},
    {"--augment --mean --std --label-offset --on-bad-record --sampler --class-weights "
     "--colour-jitter --rand-augment --random-erasing --mixup --cutmix",
     reads_data, "without a data set, as synthetic images are made ready"},
    {"--strict-order", [](Flags flags) { return flags.is("--backend", {"strict"}); },
     "without --backend strict"},
};

constexpr FlagRule kTrain[] = {
    {"--batch", [](Flags flags) { return !flags.given("--global-batch"); },
     "beside --global-batch, which says it for all devices"},
    {"--keep --checkpoint-every --resume", [](Flags flags) { return flags.given("--checkpoint"); },
     "without --checkpoint"},
    {"--eval-every --metric --patience",
     [](Flags flags) {
       return flags.given("--eval-data") || flags.given("--valid-share") ||
              flags.given("--eval-verification");
     },
     "without --eval-data, --valid-share or --eval-verification"},
    {"--new-layers",
     [](Flags flags) {
       return flags.given("--load-weights") || names_format(flags, "--model", "onnx");
     },
     "without --load-weights or --model onnx:FILE"},
};

constexpr FlagRule kPlan[] = {
    {"--placement --stage-weights --cut-after --replicas --static-scheduling --plan",
     [](Flags flags) { return !flags.given("--auto"); }, "beside --auto, which searches for that"},
    {"--parallel --microbatches",
     [](Flags flags) {
       return !flags.given("--auto") || (is_described(flags) && !flags.given("--profile"));
     },
     "beside --auto, which searches for that"},
    {"--sweep --explain",
     [](Flags flags) { return flags.given("--cluster") && !flags.given("--profile"); },
     "without --cluster, or beside --profile"},
    {"--csv --picture", [](Flags flags) { return flags.given("--sweep"); }, "without --sweep"},
    {"--output --trace --explain --finalists --rounds --no-measure",
     [](Flags flags) { return !flags.given("--sweep"); },
     "beside --sweep, which makes a table of many plans"},
    {"--price", [](Flags flags) { return !is_measured(flags); }, "beside --check or --predict"},
    {"--allow-stale --global-batch", [](Flags flags) { return flags.given("--auto"); },
     "without --auto"},
    {"--devices",
     [](Flags flags) { return !flags.given("--cluster") || !flags.given("--placement"); },
     "beside --placement, which names the devices"},
    {"--threads-per-device --oversubscribe --conv-algo --dump-passes",
     [](Flags flags) { return !is_described(flags); },
     "on a described cluster, for which nothing is compiled"},
    {"--activation-ratio",
     [](Flags flags) { return !flags.given("--auto") || !flags.given("--model"); },
     "beside --model, whose activations are costed by the cluster"},
    {"--sync-batch-norm --precision-arithmetic --precision-keep --head-dtype --freeze --train-only "
     "--lr-scale --layer-decay --freeze-norms --class-weights",
     [](Flags flags) { return !is_described(flags); },
     "on a described cluster, whose model of costs does not know it"},
    {"--recompute",
     [](Flags flags) { return !is_described(flags) || !flags.is("--recompute", {"cheap"}); },
     "with the value cheap on a described cluster, whose model of costs knows none and all"},
    {"--as --output --constants --strategy --bandwidth --memory --straight --fewer "
     "--activation-ratio --profile-batch",
     [](Flags flags) { return !is_measured(flags); }, "beside --check or --predict"},
    {"--rounds",
     [](Flags flags) {
       return searches_here(flags) || (is_measured(flags) && !flags.given("--profile"));
     },
     "without a measurement: --check, --predict or --auto on this machine"},
    {"--finalists --no-measure", searches_here,
     "without --auto on this machine: --cluster here, no --as and no --profile"},
    {"--finalists --rounds", [](Flags flags) { return !flags.given("--no-measure"); },
     "beside --no-measure"},
    {"--run", is_measured, "without --check or --predict"},
    {"--print-program",
     [](Flags flags) {
       return !is_measured(flags) && !flags.given("--auto") && !flags.given("--cluster") &&
              !flags.given("--profile") && !flags.given("--strategy");
     },
     "beside --auto, --cluster, --profile, --strategy, --check and --predict: it shows what the "
     "job's own flags are compiled to"},
};

constexpr FlagRule kProfile[] = {
    {"!--machine --devices --threads-per-device --output --json",
     [](Flags flags) { return !flags.given("--machine"); },
     "beside --machine, which measures no model"},
    {"--top", [](Flags flags) { return !flags.given("--json"); }, "beside --json, which has all"},
    {"--format", [](Flags flags) { return !flags.given("--json") || flags.given("--output"); },
     "beside --json without --output, the file that it is the format of"},
};

constexpr FlagRule kTune[] = {
    {"--conv-algo", [](Flags flags) { return flags.is("--conv-algo", {"auto"}); },
     "with tune, which measures every way"},
};

constexpr FlagRule kEval[] = {
    {"--data --classes", [](Flags flags) { return !measures_faces(flags); },
     "beside --verification or --identification, which name their own images"},
    {"--augment --mean --std --label-offset --on-bad-record",
     [](Flags flags) { return !measures_faces(flags) || flags.given("--identification"); },
     "without a data set: --data or --identification"},
    {"--strict-order", [](Flags flags) { return flags.is("--backend", {"strict"}); },
     "without --backend strict"},
};

constexpr FlagRule kSynth[] = {
    {"--count --classes --height --width --channels",
     [](Flags flags) { return !flags.given("--faces"); },
     "beside --faces, which has --identities, --images and --size"},
    {"--identities --images --size --pairs --verification --new-people",
     [](Flags flags) { return flags.given("--faces"); }, "without --faces"},
    {"--verification --new-people", [](Flags flags) { return !flags.is("--pairs", {"0"}); },
     "with --pairs 0"},
    {"--part-size", [](Flags flags) { return names_format(flags, "to", "ofrecord"); },
     "unless the set is written as ofrecord:"},
    {"--split", [](Flags flags) { return names_format(flags, "to", "idx"); },
     "unless the set is written as idx:"},
};

constexpr FlagRule kConvert[] = {
    {"--part-size", [](Flags flags) { return names_format(flags, "to", "ofrecord"); },
     "unless the set is written as ofrecord:"},
    {"--split", has_splits, "on a set without parts: ofrecord:, folder: and idx: have them"},
};

constexpr FlagRule kLook[] = {
    {"--split", has_splits, "on a set without parts: ofrecord:, folder: and idx: have them"},
};

constexpr FlagRule kBenchSingle[] = {
    {"--peer-script", [](Flags flags) { return !flags.given("--no-peer"); }, "beside --no-peer"},
};

constexpr FlagRule kBenchHead[] = {
    {"--peer-script --peer-update --peer-python", [](Flags flags) { return flags.given("--peer"); },
     "without --peer"},
    {"--sample-rate",
     [](Flags flags) { return flags.value("--modes").find("pfc") != std::string::npos; },
     "without pfc among --modes"},
};

constexpr FlagRule kBenchPublished[] = {
    {"--save-errors", [](Flags flags) { return flags.given("--cross"); }, "without --cross"},
    {"!--cross --constants --summary --save-errors",
     [](Flags flags) { return !flags.given("--cross"); }, "beside --cross, which prints no table"},
    {"--image --batch --steps", [](Flags flags) { return !flags.given("--no-runs"); },
     "beside --no-runs"},
};

}  // namespace

std::vector<FlagRule> flag_rules(std::string_view command) {
  std::vector<FlagRule> rules;
  const auto add = [&](std::span<const FlagRule> table) {
    rules.insert(rules.end(), table.begin(), table.end());
  };
  if (command == "plan") add(kPlan);
  if (command == "profile") add(kProfile);
  if (command == "tune") add(kTune);
  for (const char* name : {"train", "plan", "profile", "tune", "bench steps"}) {
    if (command == name) add(kJob);
  }
  if (command == "train" || command == "bench steps") add(kTrain);
  if (command == "eval") add(kEval);
  if (command == "data synth") add(kSynth);
  if (command == "data convert") add(kConvert);
  if (command == "data inspect" || command == "data verify") add(kLook);
  if (command == "bench single") add(kBenchSingle);
  if (command == "bench head") add(kBenchHead);
  if (command == "bench published") add(kBenchPublished);
  return rules;
}

}  // namespace millrace::cli
