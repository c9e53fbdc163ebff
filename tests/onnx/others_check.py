#!/usr/bin/env python3
"""Reads networks as other exporters write them than PyTorch's, against onnxruntime.

Each case is a small network with one thing said in another way: TensorFlow's paddings and orders of axes,
MXNet's inputs and scalings, Paddle's gates, numbers of 16 bits. Cases that are not supported must be refused
with a sentence that names their node. What onnxruntime gives is in others.json, which --write writes; where it is
installed, it is asked again.
"""
import argparse
import json
import os
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BOUND = 1e-4
IMAGE = 16
KNOWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "others.json")
random = np.random.default_rng(1)
cases = {}
node = helper.make_node


def drawn(name, *shape, scale=0.5, about=0.0, dtype=np.float32):
    return numpy_helper.from_array((about + scale * random.standard_normal(shape)).astype(dtype), name)


def numbers(name, values, dtype=np.float32):
    return numpy_helper.from_array(np.array(values, dtype), name)


def whole(name, values):
    return numbers(name, values, np.int64)


def case(name, nodes, constants, opset=13, shape=("N", 3, IMAGE, IMAGE), output="y", refused=None, scores=None,
         listed=False):
    """`listed`: constants are inputs too, as in files of old; `scores`: the tensor that is compared."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    if listed:
        inputs += [helper.make_tensor_value_info(c.name, c.data_type, list(c.dims)) for c in constants]
    graph = helper.make_graph(nodes, name, inputs, [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["N", 5])],
                              constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3 if listed else 8)
    cases[name] = (model, refused, scores)


WEIGHTS = [drawn("c", 8, 3, 3, 3), drawn("cb", 8)]
LAST = [drawn("w", 5, 8), drawn("b", 5)]
CONV = [node("Conv", ["x", "c", "cb"], ["a"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])]
RELU = [node("Relu", ["a"], ["r"])]
MEAN = [node("GlobalAveragePool", ["r"], ["g"]), node("Flatten", ["g"], ["f"])]
GEMM = [node("Gemm", ["f", "w", "b"], ["y"], transB=1)]


def at_first(name, nodes, constants, **options):
    """Nodes from x to a."""
    case(name, nodes + RELU + MEAN + GEMM, constants + LAST, **options)


def within(name, nodes, constants=(), **options):
    """Nodes from a, which may be below zero, to r."""
    case(name, CONV + nodes + MEAN + GEMM, WEIGHTS + LAST + list(constants), **options)


def after(name, nodes, constants=(), last=None, **options):
    """Nodes from r to f."""
    case(name, CONV + RELU + nodes + GEMM, WEIGHTS + (last or LAST) + list(constants), **options)


def at_last(name, nodes, constants, **options):
    """Nodes from f to y."""
    case(name, CONV + RELU + MEAN + nodes, WEIGHTS + constants, **options)


def make_linear():
    turned = [drawn("w", 8, 5), drawn("b", 5)]
    product = [node("MatMul", ["f", "w"], ["m"]), node("Add", ["m", "b"], ["y"])]
    at_last("gemm_as_stored", [node("Gemm", ["f", "w", "b"], ["y"])], turned)
    at_last("gemm_scaled", [node("Gemm", ["f", "w", "b"], ["y"], alpha=0.5, beta=2.0, transB=1)], LAST)
    at_last("gemm_without_bias", [node("Gemm", ["f", "w", "b"], ["y"], beta=0.0, transB=1)], LAST)
    at_last("gemm_one_bias", GEMM, [LAST[0], numbers("b", 0.5)])
    at_last("gemm_row_of_bias", GEMM, [LAST[0], drawn("b", 1, 5)])
    at_last("product_and_sum", product, turned)
    at_last("product_of_turned", [node("Transpose", ["v"], ["w"], perm=[1, 0])] + product, [drawn("v", 5, 8), turned[1]])
    at_last("scaled_scores", [node("Gemm", ["f", "w", "b"], ["z"], transB=1), node("Mul", ["z", "k"], ["y"])],
            LAST + [numbers("k", 16)])
    at_last("halves", [node("Cast", ["h"], ["w"], to=TensorProto.FLOAT)] + GEMM, [drawn("h", 5, 8, dtype=np.float16), LAST[1]])
    at_last("doubles", [node("Cast", ["h"], ["w"], to=TensorProto.FLOAT)] + GEMM, [drawn("h", 5, 8, dtype=np.float64), LAST[1]])
    at_last("log_softmax", [node("Gemm", ["f", "w", "b"], ["z"], transB=1), node("LogSoftmax", ["z"], ["y"], axis=1)],
            LAST, scores="z")
    at_last("length_of_one", [node("Gemm", ["f", "w", "b"], ["e"], transB=1),
                              node("ReduceL2", ["e"], ["l"], axes=[1], keepdims=1),
                              node("Clip", ["l", "least"], ["m"]), node("Shape", ["e"], ["s"]),
                              node("Expand", ["m", "s"], ["n"]), node("Div", ["e", "n"], ["y"])],
            LAST + [numbers("least", 1e-12)])
    at_last("weights_of_negative_shape", GEMM, [TensorProto(name="w", dims=[-7, 8]), LAST[1]],
            refused="tensor 'w' cannot have the shape")
    case("convolution_as_classifier", CONV + RELU + [node("GlobalAveragePool", ["r"], ["g"]),
                                                     node("Conv", ["g", "k", "b"], ["z"]), node("Flatten", ["z"], ["y"])],
         WEIGHTS + [drawn("k", 5, 8, 1, 1), LAST[1]])


def make_rows():
    mean = [node("GlobalAveragePool", ["r"], ["g"])]
    wide = [drawn("w", 5, 2048, scale=0.05), LAST[1]]
    after("two_means", [node("ReduceMean", ["r"], ["q"], axes=[3], keepdims=0),
                        node("ReduceMean", ["q"], ["f"], axes=[2], keepdims=0)])
    after("squeezed_twice", mean + [node("Squeeze", ["g", "three"], ["q"]), node("Squeeze", ["q", "two"], ["f"])],
          [whole("three", [3]), whole("two", [2])])
    after("mean_of_turned", [node("Transpose", ["r"], ["t"], perm=[0, 2, 3, 1]),
                             node("ReduceMean", ["t"], ["f"], axes=[1, 2], keepdims=0)])
    after("largest", [node("AveragePool", ["r"], ["q"], kernel_shape=[2, 2], strides=[2, 2]),
                      node("GlobalMaxPool", ["q"], ["g"]), node("Flatten", ["g"], ["f"])])
    after("shape_by_slices", [node("Shape", ["r"], ["s"]), node("Slice", ["s", "zero", "one", "zero"], ["n"]),
                              node("Concat", ["n", "rest"], ["to"], axis=0), node("Reshape", ["r", "to"], ["f"])],
          [whole("zero", [0]), whole("one", [1]), whole("rest", [-1])], last=wide)
    after("shape_by_products", [node("Shape", ["r"], ["s"]), node("Gather", ["s", "i"], ["p"]),
                                node("Gather", ["s", "j"], ["q"]), node("Mul", ["p", "q"], ["u"]), node("Mul", ["u", "q"], ["v"]),
                                node("Unsqueeze", ["v", "zero"], ["n"]), node("Concat", ["rest", "n"], ["to"], axis=0),
                                node("Reshape", ["r", "to"], ["f"])],
          [whole("i", 1), whole("j", 2), whole("zero", [0]), whole("rest", [-1])], last=wide)


def make_windows():
    def conv(source="x", **options):
        return [node("Conv", [source, "c", "cb"], ["a"], kernel_shape=[3, 3], **options)]

    for name, pads in (("behind", [0, 0, 1, 1]), ("before", [1, 1, 0, 0]), ("mixed", [2, 0, 1, 1])):
        at_first(f"conv_pads_{name}", conv(strides=[2, 2], pads=pads), WEIGHTS)
        at_first(f"conv_pads_{name}_plain", conv(pads=pads), WEIGHTS)
    for way in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        at_first(f"conv_{way.lower()}", conv(strides=[2, 2], auto_pad=way), WEIGHTS)
    at_first("conv_dilated_unevenly", conv(dilations=[2, 2], pads=[0, 2, 2, 0]), WEIGHTS)
    at_first("pad", [node("Pad", ["x", "p"], ["q"])] + conv("q"), WEIGHTS + [whole("p", [0, 0, 1, 1, 0, 0, 1, 1])])
    at_first("pad_of_old", [node("Pad", ["x"], ["q"], pads=[0, 0, 1, 0, 0, 0, 2, 1], mode="constant", value=0.0)] +
             conv("q", strides=[2, 2]), WEIGHTS, opset=10)
    at_first("pad_by_axes", [node("Pad", ["x", "p", "", "axes"], ["q"])] + conv("q", pads=[0, 0, 1, 1]),
             WEIGHTS + [whole("p", [1, 1, 0, 0]), whole("axes", [2, -1])], opset=18)
    for name, options in (("behind", {"pads": [0, 0, 1, 1]}), ("before", {"pads": [1, 1, 0, 0]}),
                          ("same", {"auto_pad": "SAME_UPPER"}), ("ceil", {"ceil_mode": 1})):
        after(f"max_pool_{name}", [node("MaxPool", ["r"], ["q"], kernel_shape=[3, 3], strides=[2, 2], **options),
                                   node("GlobalAveragePool", ["q"], ["g"]), node("Flatten", ["g"], ["f"])])
    pool = [node("GlobalAveragePool", ["p"], ["g"]), node("Flatten", ["g"], ["f"])]
    around = [node("Pad", ["r", "n"], ["q"])]
    even = [whole("n", [0, 0, 1, 1, 0, 0, 1, 1])]
    after("pad_and_max_pool", around + [node("MaxPool", ["q"], ["p"], kernel_shape=[3, 3], strides=[2, 2])] + pool, even)
    after("pad_and_mean", around + [node("AveragePool", ["q"], ["p"], kernel_shape=[3, 3], strides=[2, 2])] + pool, even)
    below = [node("Pad", ["a", "n"], ["q"]), node("MaxPool", ["q"], ["r"], kernel_shape=[3, 3])]
    within("pad_below_zero", below, even, refused="(Pad): padding is supported only in front of")
    within("pad_mirrored", [node("Pad", ["a", "n"], ["r"], mode="reflect")], even, refused="(Pad): only zeros")
    after("mean_uneven", [node("AveragePool", ["r"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])] + pool,
          refused="(AveragePool): it pads one side more")


def make_activations():
    bounds = [numbers("three", 3), numbers("zero", 0), numbers("six", 6), numbers("sixth", 1 / 6)]
    within("relu_and_minimum", [node("Relu", ["a"], ["q"]), node("Min", ["q", "six"], ["r"])], bounds)
    within("maximum_and_minimum", [node("Max", ["zero", "a"], ["q"]), node("Min", ["q", "six"], ["r"])], bounds)
    within("clip_of_old", [node("Relu", ["a"], ["q"]), node("Clip", ["q"], ["r"], min=-3.4028234663852886e38, max=6.0)], opset=9)
    add, cut = node("Add", ["a", "three"], ["p"]), node("Clip", ["p", "zero", "six"], ["q"])
    within("hardswish_divided_last", [add, cut, node("Mul", ["a", "q"], ["s"]), node("Div", ["s", "six"], ["r"])], bounds)
    within("hardswish_by_sixths", [add, cut, node("Mul", ["q", "a"], ["s"]), node("Mul", ["s", "sixth"], ["r"])], bounds)
    within("hardswish_of_relu", [add, node("Relu", ["p"], ["o"]), node("Min", ["o", "six"], ["q"]),
                                 node("Mul", ["q", "sixth"], ["s"]), node("Mul", ["s", "a"], ["r"])], bounds)
    within("hardsigmoid_of_onnx", [node("HardSigmoid", ["a"], ["r"])])
    within("leaky", [node("LeakyRelu", ["a"], ["r"], alpha=0.1)])
    within("sum_of_three", [node("Sum", ["a", "a", "a"], ["r"])])
    within("sum_of_one", [node("Sum", ["a"], ["r"])])
    within("cut_at_one", [node("Clip", ["a", "zero", "one"], ["r"])], bounds + [numbers("one", 1)],
           refused="(Clip): it cuts off at 0 and 1")
    within("elu", [node("Elu", ["a"], ["r"])], refused="(Elu) is not supported")


def make_scalings():
    first = [node("Conv", ["q", "c", "cb"], ["a"], pads=[1, 1, 1, 1])]
    at_first("insightface_input", [node("Sub", ["x", "m"], ["p"]), node("Mul", ["p", "s"], ["q"])] + first,
             WEIGHTS + [numbers("m", [127.5]), numbers("s", [0.0078125])], opset=8, listed=True)
    at_first("deviations", [node("Sub", ["x", "m"], ["p"]), node("Div", ["p", "s"], ["q"])] + first,
             WEIGHTS + [drawn("m", 1, 3, 1, 1), drawn("s", 3, 1, 1, about=2)])
    at_first("negative", [node("Sub", ["m", "x"], ["q"])] + first, WEIGHTS + [numbers("m", 1)])
    bare = [node("Conv", ["x", "c"], ["o"], pads=[1, 1, 1, 1])]
    at_first("bias_behind", bare + [node("Add", ["k", "o"], ["a"])], [WEIGHTS[0], drawn("k", 8, 1, 1)])
    at_first("norm_as_numbers", bare + [node("Mul", ["o", "s"], ["p"]), node("Add", ["p", "k"], ["a"])],
             [WEIGHTS[0], drawn("s", 1, 8, 1, 1), drawn("k", 1, 8, 1, 1)])
    at_first("norm_written_out", bare + [node("Add", ["v", "e"], ["u"]), node("Sqrt", ["u"], ["d"]), node("Sub", ["o", "m"], ["p"]),
                                         node("Div", ["p", "d"], ["a"])],
             [WEIGHTS[0], drawn("m", 1, 8, 1, 1), drawn("v", 1, 8, 1, 1, scale=0.1, about=1), numbers("e", 1e-3)])
    within("norm_of_mxnet", [node("BatchNormalization", ["a", "s", "k", "m", "v"], ["n"], momentum=0.9, spatial=1), node("Relu", ["n"], ["r"])],
           [drawn("s", 8), drawn("k", 8), drawn("m", 8), drawn("v", 8, scale=0.1, about=1)], opset=8, listed=True)
    within("number_for_each_place", [node("Mul", ["a", "k"], ["r"])], [drawn("k", 1, 1, IMAGE, IMAGE)],
           refused="(Mul): of constants only a number for each channel")


def make_channels():
    attention = [drawn("s", 4, 8), drawn("sb", 4), drawn("e", 8, 4), drawn("eb", 8)]
    body = [node("GlobalAveragePool", ["a"], ["g0"]), node("Flatten", ["g0"], ["g1"]),
            node("Gemm", ["g1", "s", "sb"], ["g2"], transB=1), node("Relu", ["g2"], ["g3"]),
            node("Gemm", ["g3", "e", "eb"], ["g4"], transB=1), node("Sigmoid", ["g4"], ["g5"])]
    within("attention_by_rows", body + [node("Reshape", ["g5", "to"], ["g6"]), node("Mul", ["a", "g6"], ["r"])],
           attention + [whole("to", [-1, 8, 1, 1])])
    within("attention_unsqueezed", body + [node("Unsqueeze", ["g5", "axes"], ["g6"]), node("Shape", ["a"], ["shape"]),
                                           node("Expand", ["g6", "shape"], ["g7"]), node("Mul", ["a", "g7"], ["r"])],
           attention + [whole("axes", [2, 3])])
    within("shuffle", [node("Reshape", ["a", "to"], ["p"]), node("Transpose", ["p"], ["q"], perm=[0, 2, 1, 3, 4]),
                       node("Reshape", ["q", "back"], ["r"])],
           [whole("to", [-1, 2, 4, IMAGE, IMAGE]), whole("back", [-1, 8, IMAGE, IMAGE])])
    within("split", [node("Split", ["a", "sizes"], ["p", "q"], axis=1), node("Concat", ["q", "p"], ["r"], axis=1)],
           [whole("sizes", [3, 5])])
    within("slices", [node("Slice", ["a", "zero", "two", "one"], ["p"]), node("Slice", ["a", "two", "end", "one"], ["q"]),
                      node("Concat", ["q", "p"], ["r"], axis=1)],
           [whole("zero", [0]), whole("two", [-2]), whole("end", [2**31 - 1]), whole("one", [1])])
    at_first("channels_last", [node("Transpose", ["x"], ["q"], perm=[0, 3, 1, 2]),
                               node("Conv", ["q", "c", "cb"], ["a"], pads=[1, 1, 1, 1])],
             WEIGHTS, shape=("N", IMAGE, IMAGE, 3))
    within("nothing_reads_it", [node("Sin", ["a"], ["unused"])] + RELU)
    within("turned", [node("Transpose", ["a"], ["r"], perm=[0, 1, 3, 2])], refused="(Transpose): it is not supported by itself")


def make_pixels():
    """Adaptive pooling between sizes that are no multiples, as torch.export takes it apart."""
    def pooled(name, size, to, hides=True, refused=None):
        windows = [range(i * size // to, -(-(i + 1) * size // to)) for i in range(to)]
        longest = max(map(len, windows))
        taken = np.array([[min(window.start + k, size - 1) for k in range(longest)] for window in windows])
        places = np.stack(np.broadcast_arrays(taken[:, :, None, None], taken[None, None]), axis=-1)
        hidden = np.array([[k >= len(window) for k in range(longest)] for window in windows])
        counts = np.outer(*2 * [[len(window) for window in windows]])
        constants = [whole("places", places), numbers("rows", hidden[:, :, None, None], bool), numbers("columns", hidden, bool),
                     numbers("zero", 0), numbers("counts", counts), whole("to", [-1, 8 * to * to])]
        nodes = [node("MaxPool", ["r"], ["q"], kernel_shape=2 * [16 // size], strides=2 * [16 // size]),
                 node("Transpose", ["q"], ["t"], perm=[2, 3, 0, 1]), node("GatherND", ["t", "places"], ["g"]),
                 node("Transpose", ["g"], ["s0"], perm=[4, 5, 0, 1, 2, 3])]
        if not hidden.any():
            nodes.append(node("ReduceMean", ["s0"], ["m"], axes=[-3, -1], keepdims=0))
        else:
            nodes.append(node("Where", ["rows", "zero", "s0"], ["s1"]))
            nodes.append(node("Where", ["columns" if hides else "none", "zero", "s1"], ["s2"]))
            constants.append(numbers("none", np.zeros_like(hidden), bool))
            sums = []
            for i in range(longest):
                constants.append(whole(f"i{i}", i))
                nodes.append(node("Gather", ["s2", f"i{i}"], [f"row{i}"], axis=-3))
                for j in range(longest):
                    nodes.append(node("Gather", [f"row{i}", f"i{j}"], [f"pixel{i}{j}"], axis=4 if j < i else -1))
                    sums.append(f"pixel{i}{j}")
            for i, pixel in enumerate(sums[1:]):
                nodes.append(node("Add", [f"sum{i}" if i else sums[0], pixel], [f"sum{i + 1}"]))
            nodes.append(node("Div", [f"sum{len(sums) - 1}", "counts"], ["m"]))
        after(name, nodes + [node("Reshape", ["m", "to"], ["f"])], constants, last=[drawn("w", 5, 8 * to * to), drawn("b", 5)],
              refused=refused)

    pooled("pixels_hidden", 5, 3)
    pooled("pixels_enlarged", 2, 7)
    pooled("pixels_of_equal_windows", 5, 4)
    pooled("pixels_single", 2, 4)
    pooled("pixels_not_hidden", 5, 3, hides=False, refused="(Div): its sums of pixels are no adaptive")


def make_enlargements():
    """Maps of a lower resolution beside those of a higher one."""
    def enlarged(name, given, constants, opset=13, refused=None, by=2, kind="Resize", **options):
        nodes = [node("MaxPool", ["r"], ["q"], kernel_shape=[by, by], strides=[by, by]),
                 node(kind, ["q"] + given, ["e"], **options), node("Add", ["r", "e"], ["s"]),
                 node("MaxPool", ["s"], ["t"], kernel_shape=[3, 3], strides=[2, 2]),
                 node("GlobalAveragePool", ["t"], ["g"]), node("Flatten", ["g"], ["f"])]
        after(name, nodes, constants, opset=opset, refused=refused)

    def scales(*values):
        return [numbers("k", values)]

    asymmetric = {"coordinate_transformation_mode": "asymmetric"}
    floor = {**asymmetric, "nearest_mode": "floor"}
    enlarged("enlarged", ["", "k"], scales(1, 1, 2, 2), **floor)
    enlarged("enlarged_by_four", ["", "k"], scales(1, 1, 4, 4), by=4)
    enlarged("enlarged_by_two_rounded", ["", "k"], scales(1, 1, 2, 2), **asymmetric)
    enlarged("enlarged_to_size", ["", "", "k"], [whole("k", [3, 8, 16, 16])], **floor)
    enlarged("enlarged_by_axes", ["", "k"], scales(2, 2), opset=18, axes=[2, -1], **floor)
    enlarged("enlarged_of_ten", ["k"], scales(1, 1, 2, 2), opset=10)
    enlarged("enlarged_of_old", ["k"], scales(1, 1, 2, 2), opset=9, kind="Upsample")
    whole_times = "(Resize): it is supported only where it repeats pixels of images a whole number of times"
    enlarged("enlarged_by_four_rounded", ["", "k"], scales(1, 1, 4, 4), by=4, refused=whole_times, **asymmetric)
    enlarged("enlarged_by_half", ["", "k"], scales(1, 1, 1.5, 2), refused=whole_times)
    enlarged("enlarged_channels", ["", "k"], scales(1, 2, 2, 2), refused=whole_times)
    enlarged("enlarged_corners", ["", "k"], scales(1, 1, 2, 2), refused=whole_times,
             coordinate_transformation_mode="align_corners")
    enlarged("enlarged_smoothly", ["", "k"], scales(1, 1, 2, 2), refused="not in the mode 'linear'", mode="linear")


MAKERS = (make_linear, make_rows, make_windows, make_activations, make_scalings, make_channels, make_pixels,
          make_enlargements)


def models(largest):
    """Names and bytes of the files up to a size."""
    for make in MAKERS:
        make()
    files = ((name, model.SerializeToString()) for name, (model, _, _) in cases.items())
    return [(name, text) for name, text in files if len(text) <= largest]


def drawn_images(model):
    """As Millrace takes them, and as the network does."""
    images = np.random.default_rng(2).standard_normal((3, 3, IMAGE, IMAGE)).astype(np.float32)
    last = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value == IMAGE
    return images, np.ascontiguousarray(images.transpose(0, 2, 3, 1)) if last else images


def ask_onnxruntime(name):
    import onnxruntime
    model, _, scores = cases[name]
    asked = onnx.ModelProto()
    asked.CopyFrom(model)
    asked.graph.output[0].name = scores or asked.graph.output[0].name
    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(asked.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": drawn_images(model)[1]})[0]


def check(name, arguments, references):
    model, refused, _ = cases[name]
    path, given, found = (os.path.join(arguments.work, file) for file in (name + ".onnx", "given.f32", "found.f32"))
    onnx.save(model, path)
    drawn_images(model)[0].tofile(given)
    done = subprocess.run([arguments.run, "run", path, given, found], stderr=subprocess.PIPE, text=True)
    if refused is not None or done.returncode != 0:
        right = refused is not None and done.returncode == 1 and refused in done.stderr and done.stderr.count("\n") == 1
        return "refused" if right else "FAILED: " + (done.stderr.strip() or f"status {done.returncode}")
    worst = 0
    for reference in references:
        expected = reference(name)
        error = np.abs(np.fromfile(found, np.float32).reshape(expected.shape) - expected).max()
        worst = max(worst, error / max(1, np.abs(expected).max()))
    return f"{worst:.1e}" if worst <= BOUND else f"FAILED: differs by {worst:.1e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", help="the program onnx_run")
    parser.add_argument("--work")
    parser.add_argument("--write", action="store_true", help="write others.json")
    parser.add_argument("names", nargs="*", help="of cases; all of them without")
    arguments = parser.parse_args()
    for make in MAKERS:
        make()
    if arguments.write:
        lines = (f'"{name}": {json.dumps([[float(f"{x:.7g}") for x in row] for row in ask_onnxruntime(name)])}'
                 for name, (_, refused, _) in cases.items() if refused is None)
        with open(KNOWN, "w") as file:
            file.write("{\n" + ",\n".join(lines) + "\n}\n")
        return 0
    os.makedirs(arguments.work, exist_ok=True)
    with open(KNOWN) as file:
        known = json.load(file)
    references = [lambda name: np.array(known[name])]
    try:
        import onnxruntime
        print("onnxruntime", onnxruntime.__version__)
        references.append(ask_onnxruntime)
    except ImportError:
        pass
    results = {name: check(name, arguments, references) for name in arguments.names or cases}
    for name, result in results.items():
        print(f"{name}: {result}")
    failed = sum(result.startswith("FAILED") for result in results.values())
    print(f"{len(results)} networks, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
