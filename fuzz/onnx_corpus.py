#!/usr/bin/python3
"""Writes small ONNX files as seeds, with every kind of node that is read: onnx_corpus.py DIRECTORY."""
import os
import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "onnx"))
import others_check


def tensor(name, *shape):
    return numpy_helper.from_array(np.ones(shape, np.float32), name)


def integers(name, values):
    return helper.make_tensor(name, TensorProto.INT64, [len(values)], values)


def save(directory, name, nodes, constants, output="y", image=8):
    graph = helper.make_graph(
        nodes, name, [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, image, image])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["n", 4])], constants)
    with open(os.path.join(directory, name), "wb") as file:
        file.write(helper.make_model(graph).SerializeToString())


def main(directory):
    os.makedirs(directory, exist_ok=True)
    node = helper.make_node
    save(directory, "classifier", [
        node("Conv", ["x", "c.weight", "c.bias"], ["a"], name="/c/Conv", kernel_shape=[3, 3],
             pads=[1, 1, 1, 1], strides=[1, 1], dilations=[1, 1], group=1),
        node("BatchNormalization", ["a", "s", "b", "m", "v"], ["d"], epsilon=1e-5),
        node("Relu", ["d"], ["e"]), node("Add", ["e", "d"], ["f"]),
        node("MaxPool", ["f"], ["g"], kernel_shape=[2, 2], strides=[2, 2]),
        node("AveragePool", ["g"], ["h"], kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["h"], ["i"]), node("Flatten", ["i"], ["j"]),
        node("Dropout", ["j"], ["k"]), node("Gemm", ["k", "w", "w.bias"], ["l"], transB=1),
        node("Softmax", ["l"], ["y"])],
        [tensor("c.weight", 2, 3, 3, 3), tensor("c.bias", 2), tensor("s", 2), tensor("b", 2),
         tensor("m", 2), tensor("v", 2), tensor("w", 4, 2), tensor("w.bias", 4)])
    save(directory, "shapes", [
        node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["b"], axis=0),
        node("Unsqueeze", ["b", "zero"], ["c"]), node("Concat", ["c", "rest"], ["d"], axis=0),
        node("Cast", ["d"], ["t"], to=TensorProto.INT64),
        node("Constant", [], ["six"], value=helper.make_tensor("", TensorProto.FLOAT, [], [6.0])),
        node("Constant", [], ["least"], value_float=0.0), node("Clip", ["x", "least", "six"], ["e"]),
        node("PRelu", ["e", "p"], ["f"]), node("Concat", ["f", "f"], ["g"], axis=1),
        node("ReduceMean", ["g"], ["h"], axes=[2, 3], keepdims=1), node("Reshape", ["h", "t"], ["i"]),
        node("MatMul", ["i", "w"], ["j"]), node("Add", ["j", "bias"], ["k"]),
        node("Identity", ["k"], ["l"]), node("LpNormalization", ["l"], ["y"], axis=1, p=2)],
        [integers("zero", [0]), integers("rest", [-1]), tensor("p", 3, 1, 1), tensor("w", 6, 4),
         tensor("bias", 4)])
    swap = dict(perm=[0, 1, 3, 2])
    average = np.array([[.5, 0], [.5, .5], [0, .5]], np.float32)
    save(directory, "adaptive", [
        node("MatMul", ["x", "r"], ["a"]), node("Transpose", ["a"], ["b"], **swap),
        node("MatMul", ["b", "r"], ["c"]), node("Transpose", ["c"], ["d"], **swap),
        node("Sigmoid", ["d"], ["e"]), node("Tanh", ["e"], ["f"]), node("Flatten", ["f"], ["g"]),
        node("Gemm", ["g", "w"], ["y"], transB=0)],
        [numpy_helper.from_array(average, "r"), tensor("w", 12, 4)], image=3)
    outside = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4, 3],
                          data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "w.data"), ("offset", "16"), ("length", "48")):
        outside.external_data.add(key=key, value=value)
    save(directory, "external", [
        node("GlobalAveragePool", ["x"], ["a"]), node("Squeeze", ["a"], ["b"]),
        node("Pad", ["b", "none"], ["c"]), node("Gemm", ["c", "w"], ["y"], transB=1)],
        [outside, integers("none", [0, 0, 0, 0])])
    listed = helper.make_tensor("w", TensorProto.FLOAT, [4, 3], [1.0] * 12)
    half = helper.make_tensor("h", TensorProto.FLOAT16, [4], np.ones(4, np.float16))
    save(directory, "lists", [
        node("GlobalAveragePool", ["x"], ["a"]), node("Flatten", ["a"], ["b"]),
        node("Gemm", ["b", "w", "h"], ["y"], transB=1)], [listed, half])
    for name, text in others_check.models(largest=4000):
        with open(os.path.join(directory, name), "wb") as file:
            file.write(text)


if __name__ == "__main__":
    main(sys.argv[1])
