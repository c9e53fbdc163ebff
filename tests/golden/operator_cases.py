"""The operators that golden tensors are made for: each case says its inputs and how PyTorch
computes it. Shapes are tiny; channel counts include multiples of 16 (where blocked layouts fit)
and others (where they need padding)."""

import numpy
import torch
import torch.nn.functional as F


class Case:
    """One operator at one shape.

    `inputs` builds the list of float32 arrays from a Draw; `compute` maps double tensors to the
    output tensor; `gradients` are the indices of the inputs that get one. `extras` maps the same
    tensors, after `compute`, to further named results.
    """

    def __init__(self, name, operator, attributes, inputs, compute, gradients, mode="training",
                 extras=None):
        self.name = name
        self.operator = operator
        self.attributes = attributes
        self.inputs = inputs
        self.compute = compute
        self.gradients = gradients
        self.mode = mode
        self.extras = extras or (lambda *tensors: {})


def pair(value):
    return list(value) if isinstance(value, (list, tuple)) else [value, value]


def joined(attributes, relu):
    """The attributes of an operator that a ReLU may be joined into, and what it does to the output."""
    if not relu:
        return attributes, lambda output: output
    return {**attributes, "relu": True}, F.relu


def convolution(name, x, weight, stride=1, padding=0, dilation=1, groups=1, bias=True, relu=False):
    settings = {"stride": pair(stride), "padding": pair(padding), "dilation": pair(dilation),
                "groups": groups}
    attributes, after = joined(settings, relu)

    def inputs(draw):
        tensors = [draw.normal(*x), draw.normal(*weight, scale=0.3)]
        return tensors + ([draw.normal(weight[0])] if bias else [])

    def compute(*tensors):
        return after(F.conv2d(*tensors, **settings))

    return Case(f"convolution_{name}", "convolution", attributes, inputs, compute,
                [0, 1, 2] if bias else [0, 1])


def linear(name, batch, inside, outside, bias=True, relu=False):
    attributes, after = joined({}, relu)

    def inputs(draw):
        tensors = [draw.normal(batch, inside), draw.normal(outside, inside, scale=0.3)]
        return tensors + ([draw.normal(outside)] if bias else [])

    return Case(f"linear_{name}", "linear", attributes, inputs,
                lambda *tensors: after(F.linear(*tensors)), [0, 1, 2] if bias else [0, 1])


def batch_norm(name, shape, epsilon=1e-5, momentum=0.1, training=True, relu=False, residual=False):
    channels = shape[1]
    attributes, after = joined({"epsilon": epsilon, "momentum": momentum}, relu)
    if residual:
        attributes["residual"] = True

    def inputs(draw):
        x = draw.normal(*shape, scale=2.0, shift=0.5)
        others = [draw.uniform(channels, low=0.5, high=1.5), draw.normal(channels),
                  draw.normal(channels), draw.uniform(channels, low=0.5, high=2.0)]
        return [x, *others, *([draw.normal(*shape)] if residual else [])]

    def compute(x, scale, bias, mean, variance, other=0):
        y = F.batch_norm(x, mean, variance, scale, bias, training, momentum, epsilon)
        return after(y + other)

    def extras(x, scale, bias, mean, variance, *_):
        return {"running_mean_after": mean, "running_var_after": variance} if training else {}

    gradients = [0, 1, 2] + ([5] if residual else [])
    return Case(f"batch_norm_{name}", "batch_norm", attributes, inputs, compute, gradients,
                "training" if training else "eval", extras)


def elementwise(operator, name, shape, function, scale=1.0):
    return Case(f"{operator}_{name}", operator, {}, lambda draw: [draw.normal(*shape, scale=scale)],
                function, [0])


def prelu(name, shape):
    def inputs(draw):
        return [draw.normal(*shape), draw.uniform(shape[1], low=-0.2, high=0.6)]

    return Case(f"prelu_{name}", "prelu", {}, inputs, F.prelu, [0, 1])


def scale_channels(name, shape):
    return Case(f"scale_channels_{name}", "scale_channels", {},
                lambda draw: [draw.normal(*shape), draw.uniform(*shape[:2], 1, 1, low=0, high=1)],
                torch.mul, [0, 1])


def max_pool(name, shape, kernel, stride, padding=0, relu=False, ceil=False):
    settings = {"kernel": pair(kernel), "stride": pair(stride), "padding": pair(padding)}
    attributes, before = joined({**settings, "ceil": True} if ceil else settings, relu)
    return Case(f"max_pool_{name}", "max_pool", attributes, lambda draw: [draw.distinct(*shape)],
                lambda x: F.max_pool2d(before(x), *settings.values(), ceil_mode=ceil), [0])


def average_pool(name, shape, kernel, stride, padding, include):
    attributes = {"kernel": pair(kernel), "stride": pair(stride), "padding": pair(padding),
                  "count_include_pad": include}
    return Case(f"average_pool_{name}", "average_pool", attributes,
                lambda draw: [draw.normal(*shape)],
                lambda x: F.avg_pool2d(x, pair(kernel), pair(stride), pair(padding),
                                       count_include_pad=include), [0])


def adaptive(name, shape, output):
    return Case(f"adaptive_average_pool_{name}", "adaptive_average_pool", {"output": pair(output)},
                lambda draw: [draw.normal(*shape)],
                lambda x: F.adaptive_avg_pool2d(x, pair(output)), [0])


def add(name, shape, relu=False):
    attributes, after = joined({}, relu)
    return Case(f"add_{name}", "add", attributes,
                lambda draw: [draw.normal(*shape), draw.normal(*shape)],
                lambda a, b: after(a + b), [0, 1])


def slice_of(name, shape, axis, begin, end):
    return Case(f"slice_{name}", "slice", {"axis": axis, "begin": begin, "end": end},
                lambda draw: [draw.normal(*shape)],
                lambda x: x.narrow(axis, begin, end - begin), [0])


def concat(name, axis, *shapes):
    return Case(f"concat_{name}", "concat", {"axis": axis},
                lambda draw: [draw.normal(*shape) for shape in shapes],
                lambda *tensors: torch.cat(tensors, axis), list(range(len(shapes))))


def weighted_cross_entropy(name, batch, weights, smoothing):
    factors = torch.tensor(weights, dtype=torch.float64)

    def compute(logits, labels):
        losses = F.cross_entropy(logits, labels, factors, reduction="none", label_smoothing=smoothing)
        return losses.mean().reshape(1)

    return Case(f"softmax_cross_entropy_{name}", "softmax_cross_entropy",
                {"label_smoothing": smoothing, "class_weights": weights},
                lambda draw: [draw.normal(batch, len(weights)), draw.labels(batch, len(weights))],
                compute, [0])


def mixed_cross_entropy(name, batch, classes, smoothing, weights=None):
    """Two labels a sample, and the share of the first in units of 2^-24."""
    attributes = {"label_smoothing": smoothing}
    if weights:
        attributes["class_weights"] = weights

    def inputs(draw):
        shares = draw.generator.integers(0, 2 ** 24 + 1, batch).astype(numpy.int32)
        seconds = draw.labels(batch, classes)
        return [draw.normal(batch, classes), draw.labels(batch, classes),
                numpy.stack([seconds, shares], 1)]

    def compute(logits, labels, mixing):
        share = mixing[:, 1:].double() / 2 ** 24
        target = (share * F.one_hot(labels, classes)
                  + (1 - share) * F.one_hot(mixing[:, 0], classes))
        factors = None if weights is None else torch.tensor(weights, dtype=torch.float64)
        losses = F.cross_entropy(logits, target, factors, reduction="none", label_smoothing=smoothing)
        return losses.mean().reshape(1)

    return Case(f"softmax_cross_entropy_{name}", "softmax_cross_entropy", attributes, inputs, compute,
                [0])


def cross_entropy(name, batch, classes, smoothing, scale=1.0):
    def inputs(draw):
        return [draw.normal(batch, classes, scale=scale), draw.labels(batch, classes)]

    def compute(logits, labels):
        return F.cross_entropy(logits, labels, label_smoothing=smoothing).reshape(1)

    return Case(f"softmax_cross_entropy_{name}", "softmax_cross_entropy",
                {"label_smoothing": smoothing}, inputs, compute, [0])


def top_k(name, batch, classes, k):
    def hits(logits, labels):
        best = logits.topk(k, dim=1).indices
        return (best == labels[:, None]).any(1).sum().reshape(1).double()

    return Case(f"top_k_{name}", "top_k", {"k": k},
                lambda draw: [draw.distinct(batch, classes), draw.labels(batch, classes)], hits, [])


class SplitLogits:
    """Logits whose classes are divided over members, as evenly as a job divides them; one member is
    looked at. Beside its own it gets what it would be told of all: per sample and member the largest
    logit, the sum of e^(logit - largest), the target's logit or 0, and the sum of logit - largest."""

    def __init__(self, batch, classes, cuts, member):
        self.batch, self.classes, self.cuts, self.member = batch, classes, cuts, member
        self.begin, self.end = cuts[member], cuts[member + 1]
        self.attributes = {"class_begin": self.begin, "classes": classes, "members": len(cuts) - 1}

    def draw(self, draw):
        self.logits = torch.from_numpy(draw.normal(self.batch, self.classes, scale=3.0)).double()
        self.labels = draw.labels(self.batch, self.classes)
        return [self.logits[:, self.begin:self.end].float().numpy(), self.labels]

    def statistics(self):
        labels = torch.from_numpy(self.labels).long()[:, None]
        target = torch.zeros_like(self.logits).scatter(1, labels, self.logits.gather(1, labels))
        told = []
        for begin, end in zip(self.cuts, self.cuts[1:]):
            part = self.logits[:, begin:end]
            largest = part.amax(1, keepdim=True)
            told.append(torch.stack([largest[:, 0], (part - largest).exp().sum(1),
                                     target[:, begin:end].sum(1), (part - largest).sum(1)], 1))
        return told

    def whole(self, own):
        return torch.cat([self.logits[:, :self.begin], own, self.logits[:, self.end:]], 1)


def softmax_statistics(name, *division):
    split = SplitLogits(*division)
    return Case(f"softmax_statistics_{name}", "softmax_statistics", split.attributes, split.draw,
                lambda own, labels: split.statistics()[split.member], [])


def split_softmax_loss(name, smoothing, *division):
    split = SplitLogits(*division)

    def inputs(draw):
        return [*split.draw(draw), torch.cat(split.statistics()).float().numpy()]

    def compute(own, labels, statistics):
        loss = F.cross_entropy(split.whole(own), labels, label_smoothing=smoothing).reshape(1)
        share = loss / split.attributes["members"]
        return loss + (share - loss).detach()  # an equal share, with the whole gradient

    return Case(f"split_softmax_loss_{name}", "split_softmax_loss",
                {**split.attributes, "label_smoothing": smoothing}, inputs, compute, [0])


def batch_norm_statistics(name, shape):
    def compute(x):
        rows = x.transpose(0, 1).flatten(1)
        return torch.cat([rows.mean(1), rows.var(1, unbiased=False) * rows.shape[1]])

    return Case(f"batch_norm_statistics_{name}", "batch_norm_statistics", {},
                lambda draw: [draw.normal(*shape, scale=2.0, shift=0.5)], compute, [])


def batch_norm_synchronised(name, own, other, epsilon=1e-5, momentum=0.1):
    """The first of two members, which gets the statistics of both."""
    channels = own[1]
    values = [shape[0] * shape[2] * shape[3] for shape in (own, other)]
    kept = {}

    def inputs(draw):
        parts = [draw.normal(*shape, scale=2.0, shift=shift) for shape, shift in ((own, 0.5), (other, -1))]
        kept["other"] = torch.from_numpy(parts[1]).double()
        rows = [torch.from_numpy(part).double().transpose(0, 1).flatten(1) for part in parts]
        told = torch.cat([torch.cat([row.mean(1), row.var(1, unbiased=False) * row.shape[1]])
                          for row in rows])
        return [parts[0], draw.uniform(channels, low=0.5, high=1.5), draw.normal(channels),
                draw.normal(channels), draw.uniform(channels, low=0.5, high=2.0),
                told.float().numpy()]

    def compute(x, scale, bias, mean, variance, _):
        whole = torch.cat([x, kept["other"]])
        y = F.batch_norm(whole, mean, variance, scale, bias, True, momentum, epsilon)
        return y[:own[0]]

    def extras(x, scale, bias, mean, variance, *_):
        return {"running_mean_after": mean, "running_var_after": variance}

    return Case(f"batch_norm_synchronised_{name}", "batch_norm_synchronised",
                {"epsilon": epsilon, "momentum": momentum, "counts": values}, inputs, compute, [],
                extras=extras)


def all_cases():
    return [
        convolution("1x1", (1, 16, 5, 5), (32, 16, 1, 1), bias=False),
        convolution("1x1_stride2", (2, 16, 5, 5), (16, 16, 1, 1), stride=2, bias=False),
        convolution("3x3", (2, 3, 5, 6), (16, 3, 3, 3), padding=1),
        convolution("3x3_blocked", (1, 16, 4, 5), (16, 16, 3, 3), padding=1, bias=False),
        convolution("3x3_odd_channels", (1, 5, 6, 9), (7, 5, 3, 3), padding=1),
        convolution("3x3_stride2", (1, 16, 5, 5), (16, 16, 3, 3), stride=2, padding=1, bias=False),
        convolution("3x3_leftover_row", (1, 4, 8, 8), (6, 4, 3, 3), stride=2),
        convolution("5x5", (1, 4, 7, 7), (8, 4, 5, 5), padding=2),
        convolution("7x7_stride2", (1, 3, 11, 11), (16, 3, 7, 7), stride=2, padding=3, bias=False),
        convolution("11x11_stride4", (1, 3, 19, 19), (2, 3, 11, 11), stride=4, padding=2),
        convolution("groups", (1, 16, 4, 4), (32, 8, 3, 3), padding=1, groups=2),
        convolution("groups_odd", (2, 6, 5, 5), (9, 2, 3, 3), padding=1, groups=3),
        convolution("depthwise", (2, 16, 4, 5), (16, 1, 3, 3), padding=1, groups=16, bias=False),
        convolution("depthwise_stride2", (1, 7, 7, 7), (7, 1, 3, 3), stride=2, padding=1, groups=7),
        convolution("dilation", (1, 5, 9, 9), (6, 5, 3, 3), padding=2, dilation=2),
        convolution("uneven", (2, 3, 8, 11), (5, 3, 3, 2), stride=(1, 3), padding=(2, 0),
                    dilation=(2, 1)),
        convolution("relu", (2, 3, 5, 6), (16, 3, 3, 3), padding=1, relu=True),
        convolution("relu_blocked", (1, 16, 4, 5), (32, 16, 1, 1), bias=False, relu=True),
        linear("odd", 4, 10, 7),
        linear("relu", 5, 12, 9, relu=True),
        linear("blocked", 3, 16, 32),
        linear("no_bias", 5, 13, 3, bias=False),
        linear("one_row", 1, 32, 16),
        batch_norm("odd", (4, 5, 3, 3)),
        batch_norm("blocked", (2, 16, 3, 3)),
        batch_norm("settings", (3, 7, 2, 5), epsilon=1e-3, momentum=0.01),
        batch_norm("one_pixel", (8, 3, 1, 1)),
        batch_norm("relu", (3, 6, 3, 3), relu=True),
        batch_norm("residual", (3, 5, 3, 4), residual=True),
        batch_norm("residual_relu", (2, 16, 3, 3), residual=True, relu=True),
        batch_norm("eval", (2, 6, 3, 4), training=False),
        batch_norm("eval_blocked", (2, 16, 3, 3), epsilon=1e-3, training=False),
        batch_norm("eval_relu", (3, 6, 3, 3), relu=True, training=False),
        elementwise("relu", "odd", (2, 5, 3, 3), F.relu),
        elementwise("relu", "blocked", (2, 16, 2, 2), F.relu),
        elementwise("relu", "rows", (3, 11), F.relu),
        elementwise("relu6", "odd", (2, 5, 3, 3), F.relu6, scale=6.0),
        elementwise("relu6", "blocked", (1, 16, 3, 3), F.relu6, scale=6.0),
        prelu("odd", (2, 5, 3, 3)),
        prelu("blocked", (2, 16, 2, 3)),
        elementwise("sigmoid", "odd", (2, 3, 3, 3), torch.sigmoid, scale=3.0),
        elementwise("sigmoid", "rows", (2, 17), torch.sigmoid, scale=10.0),
        elementwise("tanh", "odd", (2, 3, 3, 3), torch.tanh, scale=2.0),
        elementwise("tanh", "rows", (2, 17), torch.tanh, scale=5.0),
        elementwise("hardsigmoid", "odd", (2, 3, 3, 3), F.hardsigmoid, scale=4.0),
        elementwise("hardsigmoid", "rows", (2, 17), F.hardsigmoid, scale=3.0),
        elementwise("hardswish", "odd", (2, 5, 3, 3), F.hardswish, scale=4.0),
        elementwise("hardswish", "blocked", (2, 16, 2, 2), F.hardswish, scale=3.0),
        elementwise("silu", "odd", (2, 5, 3, 3), F.silu, scale=4.0),
        elementwise("silu", "blocked", (2, 16, 2, 2), F.silu, scale=10.0),
        scale_channels("odd", (2, 5, 3, 3)),
        scale_channels("blocked", (2, 16, 3, 4)),
        max_pool("2x2", (2, 16, 4, 4), 2, 2),
        max_pool("2x2_leftover", (2, 3, 7, 5), 2, 2),
        max_pool("3x3_stride2", (1, 5, 9, 9), 3, 2),
        max_pool("3x3_padding", (1, 16, 8, 8), 3, 2, padding=1),
        max_pool("uneven", (1, 4, 7, 8), (3, 2), (2, 1), padding=(1, 0)),
        max_pool("beyond", (1, 4, 6, 8), 3, 2, ceil=True),
        max_pool("beyond_padding", (2, 3, 7, 5), 2, 2, padding=1, ceil=True),
        max_pool("beyond_small", (1, 3, 2, 2), 3, 2, ceil=True),
        max_pool("relu", (1, 5, 7, 8), 3, 2, padding=1, relu=True),
        average_pool("2x2", (2, 16, 4, 4), 2, 2, 0, False),
        average_pool("padding", (2, 5, 7, 7), 3, 2, 1, False),
        average_pool("padding_counted", (2, 5, 7, 7), 3, 2, 1, True),
        average_pool("uneven", (1, 16, 5, 8), (2, 3), (1, 2), (0, 1), False),
        Case("global_average_pool_odd", "global_average_pool", {},
             lambda draw: [draw.normal(2, 5, 3, 7)], lambda x: F.adaptive_avg_pool2d(x, 1), [0]),
        Case("global_average_pool_blocked", "global_average_pool", {},
             lambda draw: [draw.normal(2, 32, 3, 3)], lambda x: F.adaptive_avg_pool2d(x, 1), [0]),
        adaptive("dividing", (1, 16, 6, 4), (3, 2)),
        adaptive("overlapping", (2, 5, 7, 5), (3, 2)),
        adaptive("same", (1, 3, 4, 4), (4, 4)),
        adaptive("larger_output", (1, 16, 2, 3), (5, 7)),
        adaptive("one_pixel", (2, 3, 1, 1), (7, 7)),
        add("odd", (2, 5, 3, 3)),
        add("blocked", (2, 16, 3, 3)),
        add("rows", (3, 10)),
        add("relu", (2, 5, 3, 3), relu=True),
        slice_of("channels", (2, 20, 3, 3), 1, 3, 18),
        slice_of("rows", (5, 7), 0, 1, 4),
        concat("channels", 1, (2, 16, 2, 3), (2, 32, 2, 3)),
        concat("channels_odd", 1, (2, 3, 4, 3), (2, 5, 4, 3), (2, 1, 4, 3)),
        concat("batch", 0, (1, 3, 2, 2), (3, 3, 2, 2)),
        concat("rows", 1, (3, 4), (3, 7)),
        Case("flatten_odd", "flatten", {}, lambda draw: [draw.normal(2, 3, 4, 5)],
             lambda x: x.flatten(1), [0]),
        Case("flatten_blocked", "flatten", {}, lambda draw: [draw.normal(2, 16, 2, 3)],
             lambda x: x.flatten(1), [0]),
        cross_entropy("plain", 4, 10, 0.0),
        cross_entropy("smoothed", 4, 10, 0.1),
        cross_entropy("odd_smoothed", 3, 37, 0.1),
        cross_entropy("large_logits", 5, 16, 0.0, scale=40.0),
        cross_entropy("one_sample", 1, 32, 0.1),
        weighted_cross_entropy("weighted", 7, [0.5, 2.0, 1.0, 0.0, 3.0], 0.0),
        weighted_cross_entropy("weighted_smoothed", 7, [0.5, 2.0, 1.0, 0.0, 3.0], 0.2),
        mixed_cross_entropy("mixed", 6, 7, 0.0),
        mixed_cross_entropy("mixed_smoothed", 6, 7, 0.1),
        mixed_cross_entropy("mixed_weighted", 6, 5, 0.1, [0.5, 2.0, 1.0, 0.25, 3.0]),
        top_k("first", 16, 5, 1),
        top_k("fifth", 12, 20, 5),
        softmax_statistics("first", 4, 10, (0, 3, 6, 10), 0),
        softmax_statistics("last", 4, 10, (0, 3, 6, 10), 2),
        split_softmax_loss("middle", 0.1, 5, 13, (0, 4, 8, 13), 1),
        split_softmax_loss("last", 0.2, 3, 14, (0, 4, 9, 14), 2),
        split_softmax_loss("plain", 0.0, 3, 7, (0, 3, 7), 0),
        batch_norm_statistics("odd", (3, 5, 2, 3)),
        batch_norm_synchronised("two_members", (3, 5, 2, 3), (1, 5, 2, 3)),
        Case("l2_normalize_odd", "l2_normalize", {"epsilon": 1e-12},
             lambda draw: [draw.normal(3, 7)], lambda x: F.normalize(x, dim=1, eps=1e-12), [0]),
        Case("l2_normalize_blocked", "l2_normalize", {"epsilon": 1e-12},
             lambda draw: [draw.normal(4, 32, scale=5.0)],
             lambda x: F.normalize(x, dim=1, eps=1e-12), [0]),
    ]
