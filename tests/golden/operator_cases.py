"""The operators that golden tensors are made for: each case says its inputs and how PyTorch
computes it. Shapes are tiny; channel counts include multiples of 16 (where blocked layouts fit)
and others (where they need padding)."""

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


def convolution(name, x, weight, stride=1, padding=0, dilation=1, groups=1, bias=True):
    attributes = {"stride": pair(stride), "padding": pair(padding), "dilation": pair(dilation),
                  "groups": groups}

    def inputs(draw):
        tensors = [draw.normal(*x), draw.normal(*weight, scale=0.3)]
        return tensors + ([draw.normal(weight[0])] if bias else [])

    def compute(*tensors):
        return F.conv2d(*tensors, **attributes)

    return Case(f"convolution_{name}", "convolution", attributes, inputs, compute,
                [0, 1, 2] if bias else [0, 1])


def linear(name, batch, inside, outside, bias=True):
    def inputs(draw):
        tensors = [draw.normal(batch, inside), draw.normal(outside, inside, scale=0.3)]
        return tensors + ([draw.normal(outside)] if bias else [])

    return Case(f"linear_{name}", "linear", {}, inputs, F.linear, [0, 1, 2] if bias else [0, 1])


def batch_norm(name, shape, epsilon=1e-5, momentum=0.1, training=True):
    channels = shape[1]

    def inputs(draw):
        x = draw.normal(*shape, scale=2.0, shift=0.5)
        return [x, draw.uniform(channels, low=0.5, high=1.5), draw.normal(channels),
                draw.normal(channels), draw.uniform(channels, low=0.5, high=2.0)]

    def compute(x, scale, bias, mean, variance):
        return F.batch_norm(x, mean, variance, scale, bias, training, momentum, epsilon)

    def extras(x, scale, bias, mean, variance):
        return {"running_mean_after": mean, "running_var_after": variance} if training else {}

    return Case(f"batch_norm_{name}", "batch_norm", {"epsilon": epsilon, "momentum": momentum},
                inputs, compute, [0, 1, 2] if training else [],
                "training" if training else "eval", extras)


def elementwise(operator, name, shape, function, scale=1.0):
    return Case(f"{operator}_{name}", operator, {}, lambda draw: [draw.normal(*shape, scale=scale)],
                function, [0])


def prelu(name, shape):
    def inputs(draw):
        return [draw.normal(*shape), draw.uniform(shape[1], low=-0.2, high=0.6)]

    return Case(f"prelu_{name}", "prelu", {}, inputs, F.prelu, [0, 1])


def max_pool(name, shape, kernel, stride, padding=0):
    attributes = {"kernel": pair(kernel), "stride": pair(stride), "padding": pair(padding)}
    return Case(f"max_pool_{name}", "max_pool", attributes, lambda draw: [draw.distinct(*shape)],
                lambda x: F.max_pool2d(x, *attributes.values()), [0])


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


def add(name, shape):
    return Case(f"add_{name}", "add", {}, lambda draw: [draw.normal(*shape), draw.normal(*shape)],
                torch.add, [0, 1])


def concat(name, axis, *shapes):
    return Case(f"concat_{name}", "concat", {"axis": axis},
                lambda draw: [draw.normal(*shape) for shape in shapes],
                lambda *tensors: torch.cat(tensors, axis), list(range(len(shapes))))


def cross_entropy(name, batch, classes, smoothing, scale=1.0):
    def inputs(draw):
        return [draw.normal(batch, classes, scale=scale), draw.labels(batch, classes)]

    def compute(logits, labels):
        return F.cross_entropy(logits, labels, label_smoothing=smoothing).reshape(1)

    return Case(f"softmax_cross_entropy_{name}", "softmax_cross_entropy",
                {"label_smoothing": smoothing}, inputs, compute, [0])


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
        linear("odd", 4, 10, 7),
        linear("blocked", 3, 16, 32),
        linear("no_bias", 5, 13, 3, bias=False),
        linear("one_row", 1, 32, 16),
        batch_norm("odd", (4, 5, 3, 3)),
        batch_norm("blocked", (2, 16, 3, 3)),
        batch_norm("settings", (3, 7, 2, 5), epsilon=1e-3, momentum=0.01),
        batch_norm("one_pixel", (8, 3, 1, 1)),
        batch_norm("eval", (2, 6, 3, 4), training=False),
        batch_norm("eval_blocked", (2, 16, 3, 3), epsilon=1e-3, training=False),
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
        max_pool("2x2", (2, 16, 4, 4), 2, 2),
        max_pool("2x2_leftover", (2, 3, 7, 5), 2, 2),
        max_pool("3x3_stride2", (1, 5, 9, 9), 3, 2),
        max_pool("3x3_padding", (1, 16, 8, 8), 3, 2, padding=1),
        max_pool("uneven", (1, 4, 7, 8), (3, 2), (2, 1), padding=(1, 0)),
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
        Case("l2_normalize_odd", "l2_normalize", {"epsilon": 1e-12},
             lambda draw: [draw.normal(3, 7)], lambda x: F.normalize(x, dim=1, eps=1e-12), [0]),
        Case("l2_normalize_blocked", "l2_normalize", {"epsilon": 1e-12},
             lambda draw: [draw.normal(4, 32, scale=5.0)],
             lambda x: F.normalize(x, dim=1, eps=1e-12), [0]),
    ]
