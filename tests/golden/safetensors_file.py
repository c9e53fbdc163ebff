"""Reads and writes safetensors files with nothing but numpy.

A file is the length of its header (uint64, little-endian), the header as JSON (for each tensor its
dtype, shape and the range of its bytes), and the bytes of all tensors one after the other.
"""

import json
import os
import struct

import numpy

TYPES = {"F32": numpy.dtype("<f4"), "I32": numpy.dtype("<i4"), "I64": numpy.dtype("<i8"),
         "U8": numpy.dtype("u1")}


def type_name(array):
    for name, dtype in TYPES.items():
        if array.dtype == dtype:
            return name
    raise ValueError(f"no safetensors type here for {array.dtype}")


def save(path, tensors, metadata=None):
    """Writes {name: array} in the order given; `path` appears only when complete."""
    header = {"__metadata__": metadata} if metadata else {}
    offset = 0
    arrays = []
    for name, tensor in tensors.items():
        tensor = numpy.asarray(tensor)
        array = numpy.ascontiguousarray(tensor).reshape(tensor.shape)
        header[name] = {"dtype": type_name(array), "shape": list(array.shape),
                        "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
        arrays.append(array)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    temporary = f"{path}.{os.getpid()}.part"
    try:
        with open(temporary, "wb") as file:
            file.write(struct.pack("<Q", len(text)))
            file.write(text)
            for array in arrays:
                file.write(array.tobytes())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.remove(temporary)
        raise


def load(path):
    """Returns ({name: array}, metadata)."""
    with open(path, "rb") as file:
        content = file.read()
    length = struct.unpack_from("<Q", content)[0]
    header = json.loads(content[8:8 + length])
    metadata = header.pop("__metadata__", {})
    data = memoryview(content)[8 + length:]
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        array = numpy.frombuffer(data[begin:end], dtype=TYPES[entry["dtype"]])
        tensors[name] = array.reshape(entry["shape"])
    return tensors, metadata
