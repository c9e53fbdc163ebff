"""A draw as a command of the program, and as the plain job of one device that it must equal."""

import axes
from axes import micro_batches

STEPS = 4
MIDDLE = 2  # the step of the checkpoint in the middle
SAMPLES = 400  # four steps of the largest batch, and a tenth of it held back


def learning_rate(draw):
    """So small that rounding does not grow from step to step: deep networks, and the heads, whose logits
    are times 64, have steep losses."""
    if "adamw" in draw["optimizer"]:
        return "0.0001" if draw["head"] else "0.001"
    if draw["optimizer"] == "rmsprop":  # below epsilon, steps are sgd's, 33 times as long
        return "0.0000003" if draw["head"] else "0.0003" if draw["model"] == "fashion_cnn" else "0.00003"
    if draw["optimizer"] in ("lars", "lars-plain", "lamb"):
        return "0.001" if draw["head"] else "0.01"
    return "0.00001" if draw["head"] else "0.01" if draw["model"] == "fashion_cnn" else "0.001"


OPTIMIZERS = {
    "": [],
    "plain": ["--momentum", "0"],
    "nesterov": ["--nesterov"],
    "long": ["--nesterov", "--momentum", "0.99"],
    "adamw": ["--optimizer", "adamw"],
    "adamw-betas": ["--optimizer", "adamw", "--adam-beta1", "0.8", "--adam-beta2", "0.95",
                    "--adam-epsilon", "1e-3"],
    "adamw-odd": ["--optimizer", "adamw", "--adam-beta1", "0", "--adam-beta2", "0.5", "--adam-epsilon", "0.1"],
    "lars": ["--optimizer", "lars", "--lars-trust", "0.02"],
    "lars-plain": ["--optimizer", "lars", "--lars-trust", "0.02", "--momentum", "0"],
    "lamb": ["--optimizer", "lamb"],
    "rmsprop": ["--optimizer", "rmsprop", "--adam-beta2", "0.9", "--adam-epsilon", "0.03"],
}

# Words that are flags of their own.
WORDS = {
    "decay": {"0": ["--weight-decay", "0"], "0.01": ["--weight-decay", "0.01"],
              "0.01-all": ["--weight-decay", "0.01", "--decay-all"]},
    "clip": {"0.5": ["--clip-norm", "0.5"], "1000": ["--clip-norm", "1000"], "0.001": ["--clip-norm", "0.001"],
             "backbone": ["--clip-norm", "0.5", "--clip-backbone"]},
    "precision": {"fp16": ["--precision", "fp16"], "bf16": ["--precision", "bf16"],
                  "bf16-storage": ["--precision", "bf16", "--precision-arithmetic", "storage"]},
    "scale": {"32": ["--loss-scale", "32"], "1024": ["--loss-scale", "1024"],
              "0.125": ["--loss-scale", "0.125"], "dynamic": ["--loss-scale", "dynamic"],
              "bounded": ["--loss-scale", "dynamic", "--loss-scale-window", "2", "--loss-scale-min", "256",
                          "--loss-scale-max", "1024"],
              "window": ["--loss-scale", "dynamic", "--loss-scale-window", "2"],
              "overflow": ["--loss-scale", "dynamic", "--inject-overflow", "2"]},
    "trained": {"decayed": ["--layer-decay", "0.5"], "both": ["--layer-decay", "0.7"]},
    "norms": {"frozen": ["--freeze-norms"]},
    "weighted": {"balanced": ["--class-weights", "balanced"]},
    "average": {"0.9": ["--ema", "0.9"]},
    "dropout": {"off": ["--dropout", "off"]},
    "smoothing": {"0.1": ["--label-smoothing", "0.1"], "0.9": ["--label-smoothing", "0.9"]},
    "rate": {"step": ["--lr-schedule", "step", "--lr-milestones", "1,3", "--lr-gamma", "0.3"],
             "cosine": ["--lr-schedule", "cosine"],
             "polynomial": ["--lr-schedule", "polynomial", "--lr-power", "2", "--lr-final", "0.001"],
             "root": ["--lr-schedule", "polynomial", "--lr-power", "0.5"],
             "warmup": ["--lr-warmup-steps", "2"]},
    "head": {"softmax": ["--head", "softmax"], "arcface": ["--head", "arcface"],
             "arcface-32": ["--head", "arcface", "--margin", "0.4", "--scale", "32"],
             "cosface": ["--head", "cosface", "--margin", "0.3"],
             "combined": ["--head", "combined", "--margin", "0.9,0.3,0.1"],
             "adaface": ["--head", "adaface"], "magface": ["--head", "magface", "--margin", "0.3,0.7"],
             "curricularface": ["--head", "curricularface"],
             "filtered": ["--head", "arcface", "--head-filter", "0.05"]},
    "head-momentum": {"none": ["--head-momentum", "none"], "frozen": ["--head-momentum", "frozen"]},
    "head-gradient": {"plain": ["--head-gradient", "plain"]},
    "head-dtype": {"bf16": ["--head-dtype", "bf16"], "fp16": ["--head-dtype", "fp16"]},
    "head-rate": {},
    "convolutions": {"winograd": ["--conv-algo", "winograd"], "": ["--conv-algo", "direct"]},
    "finite": {"on": ["--check-finite"]},
    "trace": {"on": ["--trace", "trace.json"]},
    # How a job is divided: one device says none of these.
    "parallel": {"data": ["--parallel", "data"], "model": ["--parallel", "model"],
                 "hybrid": ["--parallel", "hybrid"]},
    "static": {"on": ["--static-scheduling", "on"], "off": ["--static-scheduling", "off"]},
    "replicas": {"split": ["--replicas", "split"], "roundrobin": ["--replicas", "roundrobin"]},
    "share": {"on": ["--share-optimizer"]},
    "sync": {"on": ["--sync-batch-norm"]},
    "wire": {"fp32": ["--comm-dtype", "fp32"], "fp16": ["--comm-dtype", "fp16"],
             "bf16": ["--comm-dtype", "bf16"]},
    "backend": {"strict": ["--backend", "strict"],
                "strict-eager": ["--backend", "strict", "--strict-order", "eager"],
                "strict-random": ["--backend", "strict", "--strict-order", "random:5"]},
    "recompute": {"none": ["--recompute", "none"], "cheap": ["--recompute", "cheap"],
                  "all": ["--recompute", "all"]},
    "head-parallel": {"dp": ["--head-parallel", "dp"], "mp": ["--head-parallel", "mp"],
                      "pfc": ["--head-parallel", "pfc", "--sample-rate", "0.5"],
                      # No class but those of the batch: the same sample, however classes are divided.
                      "pfc-few": ["--head-parallel", "pfc", "--sample-rate", "0.01"],
                      "pfc-all": ["--head-parallel", "pfc", "--sample-rate", "1"]},
}

# How the images of a step are made.
CHANGES = {
    "raw": ["--augment", "none"],
    "small": ["--augment", "small"],
    "changed": ["--augment", "small", "--random-erasing", "0.5", "--rand-augment", "2,9"],
    "jitter": ["--augment", "small", "--colour-jitter", "0.4,0.3,0.2"],
    "mixup": ["--augment", "none", "--mixup", "0.4"],
    "cutmix": ["--augment", "none", "--cutmix", "1"],
    "either": ["--augment", "small", "--mixup", "0.2", "--cutmix", "1"],
    "sampled": ["--augment", "none", "--sampler", "balanced"],
}

# Said of the mathematics of a step, so of the reference too; the rest says where it is computed.
MEANING = ("trained", "norms", "weighted", "average", "decay", "clip", "precision", "scale", "dropout",
           "smoothing", "rate", "head", "head-rate", "head-gradient", "head-dtype", "convolutions")
DIVISION = ("parallel", "static", "replicas", "share", "sync", "wire", "recompute", "backend",
            "head-parallel", "head-momentum", "finite", "trace")

CUTS = {  # layers behind which the stages end
    "fashion_cnn": ["bn1", "layer1.0", "layer2.0"],
    "mobilefacenet": ["layers.2", "layers.4", "layers.6"],
    "resnet18": ["layer1", "layer2", "layer3"],
    "resnet50": ["layer1", "layer2", "layer3"],
    "resnext50_32x4d": ["layer1", "layer2", "layer3"],
    "iresnet18": ["layer1", "layer2", "layer3"],
    "squeezenet1_1": ["features.4", "features.7", "features.10"],
    "mobilenet_v3_large": ["features.3", "features.6", "features.12"],
    "mobilenet_v2": ["features.3", "features.7", "features.13"],
    "efficientnet_b0": ["features.2", "features.4", "features.6"],
    "densenet121": ["features.transition1", "features.transition2", "features.transition3"],
    "alexnet": ["features.3", "features.8", "classifier.1"],
    "vgg16": ["features.9", "features.19", "classifier.0"],
    "vgg16_bn": ["features.10", "features.20", "classifier.0"],
}


# Layers that are not trained: the first ones, and one between others.
FROZEN = {
    "fashion_cnn": {"late": "conv1,bn1,layer1", "middle": "layer2"},
    "mobilefacenet": {"late": "layers.0,layers.1,layers.2", "middle": "layers.3"},
    "resnet18": {"late": "conv1,bn1,layer1,layer2", "middle": "layer3.0"},
    "resnet50": {"late": "conv1,bn1,layer1,layer2", "middle": "layer3.0"},
    "resnext50_32x4d": {"late": "conv1,bn1,layer1,layer2", "middle": "layer3.0"},
    "iresnet18": {"late": "conv1,bn1,prelu,layer1", "middle": "layer3.0"},
    "squeezenet1_1": {"late": "features.0,features.3", "middle": "features.7"},
    "mobilenet_v3_large": {"late": "features.0,features.1,features.2", "middle": "features.5"},
    "mobilenet_v2": {"late": "features.0,features.1,features.2", "middle": "features.7"},
    "efficientnet_b0": {"late": "features.0,features.1,features.2", "middle": "features.4"},
    "densenet121": {"late": "features.conv0,features.norm0,features.denseblock1",
                    "middle": "features.transition2"},
    "alexnet": {"late": "features.0,features.3", "middle": "classifier.1"},
    "vgg16": {"late": "features.0,features.2", "middle": "features.28"},
    "vgg16_bn": {"late": "features.0,features.1", "middle": "features.40"},
}


# Layers that a plan divides by name: the outputs of one, the inputs of another.
DIVIDED = {
    "fashion_cnn": ("layer1.0.conv1", "fc"),
    "mobilefacenet": ("layers.2.layers.0.layers.0", "features.layers.2"),
    "resnet18": ("layer1.0.conv1", "fc"),
    "resnet50": ("layer1.0.conv1", "fc"),
    "resnext50_32x4d": ("layer1.0.conv1", "fc"),
    "iresnet18": ("layer1.0.conv1", "fc"),
    "squeezenet1_1": ("features.3.squeeze", "features.4.squeeze"),
    "mobilenet_v3_large": ("features.2.block.0.0", "classifier.0"),
    "mobilenet_v2": ("features.2.conv.0.0", "classifier.1"),
    "efficientnet_b0": ("features.2.0.block.0.0", "classifier.1"),
    "densenet121": ("features.denseblock1.denselayer1.conv1", "classifier"),
    "alexnet": ("features.3", "classifier.4"),
    "vgg16": ("features.2", "classifier.3"),
    "vgg16_bn": ("features.3", "classifier.3"),
}


def words(draw, names):
    flags = [flag for axis in names for flag in WORDS[axis].get(draw[axis], [])]
    if "head-rate" in names and draw["head-rate"]:
        flags += ["--head-lr", f"{3 * float(learning_rate(draw)):g}"]
    if "trained" in names and draw["trained"] in ("late", "middle", "both"):
        flags += ["--freeze", FROZEN[draw["model"]][draw["trained"].replace("both", "late")]]
    if "trained" in names and draw["trained"] == "thawed":
        flags += ["--freeze", FROZEN[draw["model"]]["late"], "--freeze-epochs", "1"]
    if "trained" in names and draw["trained"] == "only":
        flags += ["--train-only", FROZEN[draw["model"]]["middle"]]
    if "trained" in names and draw["trained"] == "scaled":
        flags += ["--lr-scale", FROZEN[draw["model"]]["late"].replace(",", "=0.3,") + "=0.3"]
    return flags


def global_batch(draw):
    return int(draw["batch"]) * axes.devices_of(draw)


def steps_of_epoch(draw):
    """Where epochs are short: two, or as many as see every class; how many a share of the data leaves is not
    for this program to say."""
    classes = axes.MODELS[draw["model"]]["classes"]
    short = draw["epochs"] and draw["eval"] != "share" and draw["trained"] != "thawed"
    return max(2, -(-classes // global_batch(draw))) if short else 0


def samples(draw):
    """Of the training data; layers thaw when an epoch of two or three steps ends. Short epochs leave half a
    step's samples over."""
    classes = axes.MODELS[draw["model"]]["classes"]
    if draw["trained"] != "thawed":
        steps = steps_of_epoch(draw)
        return steps * global_batch(draw) + (global_batch(draw) + 1) // 2 if steps else SAMPLES
    steps = 2 if 2 * global_batch(draw) >= classes else 3
    return steps * global_batch(draw)


def placement(draw):
    """node:device for each stage; ranks have one range of the devices each, or take them in turn."""
    count, ranks = axes.devices_of(draw), axes.ranks_of(draw)
    nodes = [device % ranks if draw["ranks"] == "turned" else device * ranks // count for device in range(count)]
    names = [f"{node}:{nodes[:device].count(node)}" for device, node in enumerate(nodes)]
    return ".".join(",".join(names[device] for device in stage) for stage in axes.stages_of(draw))


def where(draw):
    stages = axes.stages_of(draw)
    count = axes.devices_of(draw)
    if draw["layout"] == "1" and draw["ranks"] == "1":
        flags = []
    elif len(stages) == 1 and count % axes.ranks_of(draw) == 0 and draw["ranks"] != "turned":
        flags = ["--devices", str(count // axes.ranks_of(draw))]
    else:
        flags = ["--placement", placement(draw)]
    if draw["schedule"]:
        flags += ["--schedule", draw["schedule"]]
    if draw["microbatches"]:
        flags += ["--microbatches", draw["microbatches"]]
    if draw["cut"] == "weights":
        flags += ["--stage-weights", ":".join(str(2 + i % 2) for i in range(len(stages)))]
    if draw["cut"] == "after" and len(stages) > 1:
        flags += ["--cut-after", ",".join(CUTS[draw["model"]][: len(stages) - 1])]
    return flags


def common(draw, data):
    """What every run of the draw and of its reference says."""
    model = axes.MODELS[draw["model"]]
    flags = ["--model", draw["model"], "--image", str(model["image"]),
             "--channels", str(model["channels"]), "--classes", str(model["classes"]),
             "--steps", str(STEPS), "--seed", "7", "--oversubscribe"]
    if draw["data"] != "synthetic":
        flags += ["--data", data.training(draw["model"], samples(draw)), *CHANGES[draw["data"]]]
    flags += ["--lr", learning_rate(draw)]
    flags += OPTIMIZERS[draw["optimizer"]] + words(draw, MEANING)
    if draw["weighted"] == "file":
        flags += ["--class-weights", data.weights(draw["model"])]
    if draw["keep"]:
        flags += ["--precision-keep", FROZEN[draw["model"]]["late"]]
    if draw["eval"] == "share":
        flags += ["--valid-share", "0.1"]
    elif draw["eval"] == "faces":
        flags += ["--eval-verification", data.pairs(draw["model"])]
    elif draw["eval"]:
        flags += ["--eval-data", data.evaluation(draw["model"])]
    if draw["eval"] == "every":
        flags += ["--eval-every", "2"]
    return flags


def threads(count="1"):
    return ["--threads-per-device", count, "--workers", count]


def plan_of(draw):
    """Where each part lies, as a plan tells it."""
    stages = axes.stages_of(draw)
    plan = {"version": 1, "placement": placement(draw), "microbatches": micro_batches(draw)}
    for axis, field in (("parallel", "parallel"), ("schedule", "schedule"), ("replicas", "replicas"),
                        ("wire", "comm_dtype"), ("recompute", "recompute")):
        if draw[axis]:
            plan[field] = draw[axis]
    if draw["static"]:
        plan["static_scheduling"] = draw["static"] == "on"
    if draw["share"]:
        plan["share_optimizer"] = True
    if draw["sync"]:
        plan["synchronise_batch_norm"] = True
    if draw["cut"] == "weights":
        plan["stage_weights"] = [2 + i % 2 for i in range(len(stages))]
    if draw["cut"] == "after" and len(stages) > 1:
        plan["cut_after"] = CUTS[draw["model"]][: len(stages) - 1]
    if draw["plan"] == "layers":
        outputs, inputs = DIVIDED[draw["model"]]
        plan["layers"] = {outputs: "split_output", inputs: "split_input"}
    return plan


PLANNED = ("parallel", "static", "replicas", "share", "sync", "wire", "recompute")


def flags_of(draw, data):
    """The job itself, without the files that it writes."""
    batch = ["--global-batch", str(global_batch(draw))] if draw["total"] else ["--batch", draw["batch"]]
    batch += threads(draw["threads"] or "1")
    if draw["plan"]:
        return (common(draw, data) + batch + ["--plan", data.plan(plan_of(draw))]
                + words(draw, [axis for axis in DIVISION if axis not in PLANNED]))
    return common(draw, data) + batch + where(draw) + words(draw, DIVISION)


def other_placement(draw):
    """The draw that goes on from the middle."""
    if draw["resume"] == "same":
        return draw
    other = dict(draw)
    for axis in ("layout", "ranks", "parallel", "schedule", "static", "replicas", "microbatches",
                 "cut", "plan", "total", "share", "sync", "wire", "recompute", "backend", "threads"):
        other[axis] = axes.DEFAULT[axis]
    if draw["wire"] == "fp16" and not draw["scale"]:
        other["scale"] = "dynamic"  # which the wire brought
    if axes.normalises(draw):
        other["sync"] = "on"  # so that batch norms see what they saw
    other["layout"] = other_layout(draw)
    stages = axes.stages_of(other)
    if len(stages) > 1:
        other["microbatches"] = "1"
        other["share"] = "on" if max(map(len, stages)) > 1 else ""
    if draw["resume"] in ("stages", "hybrid") and axes.devices_of(other) > 1 and draw["trained"] != "thawed":
        other["ranks"] = "3" if axes.devices_of(other) > 2 else "2"  # of which only one process may thaw layers
    if draw["resume"] == "hybrid" and len(stages[0]) > 1:
        other["parallel"] = "hybrid"
    if max(map(len, stages)) == 1:
        other["sync"] = ""
    if draw["precision"] == "fp16" and axes.travels(other) and not axes.travels(draw):
        other["wire"] = "fp32"  # what travels in fp16 overflows at scales at which what stays does not
    other["batch"] = str(global_batch(draw) // axes.devices_of(other))
    return other


def other_layout(draw):
    """Devices that can share the batch, others than those of the draw."""
    if draw["resume"] == "alone":
        return "1"
    total = global_batch(draw)
    alone = draw["head-parallel"] == "pfc"  # devices that share a head take other samples of its classes
    wide = ["2", "3", "4"] if not alone else []
    stages = ["1.2", "2.2"] if not alone else []
    layouts = [*stages, "2.1", "1.1.1"] if draw["resume"] == "stages" else wide
    layouts += ["1.1", "same1.1"]
    for layout in layouts:
        one = {**draw, "layout": layout}
        if layout != draw["layout"] and total % axes.devices_of(one) == 0:
            return layout
    return "1"
