"""operator_facts_test.py ROOT: what is known of an operator type stands in its definition.

Outside of src/graph, src/kernels (which registers kernels by type) and src/models/onnx (which translates names),
nothing compares the type of an operator with a string, or keeps a list of types.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1]) / "src"
NAMED_BY_TYPE = ("graph", "kernels", "models/onnx")

# Names of other things that are also types of operators.
OTHER_NAMES = {
    "comm/group.cpp": "collectives",
    "compile/program.cpp": "kinds of instructions",
    "planner/cost/constants.cpp": "kinds of work",
}


def types_of_operators():
    text = "".join(path.read_text() for path in sorted((ROOT / "graph/operators").glob("*.cpp")))
    named = set(re.findall(r'\.type = "(\w+)"', text))
    named |= set(re.findall(r'\b(?:forward|backward)\("(\w+)"', text))
    named |= set(re.findall(r'constexpr const char\* k\w+ = "(\w+)"', text))
    return named


def faults(text, types):
    """Yields the offset of each comparison and each list."""
    quoted = r'"(?:%s)"' % "|".join(sorted(types, key=len, reverse=True))
    for pattern in (
        r"[!=]=\s*" + quoted,
        quoted + r"\s*[!=]=",
        r"\btype(?:\(\))?\s*\.\s*(?:starts_with|ends_with|find|contains|compare|substr)\(",
        r"\(\s*" + quoted + r",\s*\[",  # for_each("add", [...]
        r"\b\w+\[\]\s*=\s*\{[^{};]*" + quoted,
        r"\b(?:set|vector|array|map)<[^;()]*>[^;()]*\{\s*\{?\s*" + quoted,
    ):
        for found in re.finditer(pattern, text):
            yield found.start()


def main():
    types = types_of_operators()
    if not {"convolution", "relu", "all_reduce", "margin_head_loss"} <= types:
        sys.exit("the types of operators are not found in src/graph/operators: this test looks for them")
    files = [path for path in sorted(ROOT.rglob("*")) if path.suffix in (".h", ".cpp")]
    looked_at = 0
    wrong = []
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(tuple(folder + "/" for folder in NAMED_BY_TYPE)) or name in OTHER_NAMES:
            continue
        looked_at += 1
        text = path.read_text()
        for offset in faults(text, types):
            line = text.count("\n", 0, offset)
            wrong.append(f"src/{name}:{line + 1}: {text.splitlines()[line].strip()}")
    if looked_at < 500:
        sys.exit("src/ has hardly any files: this test looks at them")
    if wrong:
        sys.exit("facts about operators; make them fields of graph/operator_definition.h:\n" + "\n".join(wrong))


main()
