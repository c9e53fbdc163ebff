"""Computes profiles/optima.json: PipeDream's optima of both profiles, straight from the definitions.

Run without arguments; needs only the standard library. Slow and literal on purpose.
"""
import functools
import json
import math
import pathlib

PROFILES = pathlib.Path(__file__).parent / "profiles"


def read(path):
    nodes, edges = {}, []
    for line in path.read_text().splitlines():
        if line.startswith("\t"):
            edges.append(tuple(line.strip().split(" -- ")))
            continue
        name, description, values = line.split(" -- ")
        values = [float(value.split("=")[1]) for value in values.split(", ")]
        nodes[name] = (description, values[0] + values[1], values[2], values[3])
    fed = {to for _, to in edges}
    feeds = {source for source, _ in edges}
    gone = {
        name
        for name, (description, *_) in nodes.items()
        if (name not in fed and description.startswith("Input"))
        or (name not in feeds and description.startswith("__getitem__"))
    }
    nodes = {name: value for name, value in nodes.items() if name not in gone}
    return nodes, [edge for edge in edges if not gone & set(edge)]


def find_states(nodes, edges):
    """List of (prefix, seconds, activation bytes, parameter bytes, output bytes), sorted."""
    after = {name: [to for source, to in edges if source == name] for name in nodes}
    ancestors = {name: set() for name in nodes}
    for _ in nodes:
        for source, to in edges:
            ancestors[to] |= ancestors[source] | {source}

    def augment(chain):
        result = set(chain)
        for member in chain:
            for before in ancestors[member]:
                if any(n != member and n not in ancestors[member] for n in after[before]):
                    result.add(before)
        return result

    first = next(name for name in nodes if not ancestors[name])
    chains = [frozenset([first])]
    for chain in chains:
        wide = augment(chain)
        for member in wide:
            for new in after[member]:
                if new in chain or any(new in ancestors[other] for other in wide):
                    continue
                grown = (wide - {member}) | {new}
                grown = frozenset(
                    n for n in grown if not any(n in ancestors[other] for other in grown)
                )
                if grown not in chains:
                    chains.append(grown)
    states = []
    for chain in chains:
        prefix = frozenset(chain).union(*(ancestors[name] for name in chain))
        total = [sum(nodes[name][column] for name in prefix) for column in (1, 2, 3)]
        output = sum(nodes[name][2] for name in augment(chain))
        states.append((prefix, total[0] / 1000, total[1], total[2], output))
    return sorted(states, key=lambda state: len(state[0]))


def optimum(states, levels, ratio, memory, straight, fewer):
    """Seconds of the best pipeline, or None."""
    last = len(states) - 1
    nothing = (frozenset(), 0, 0, 0, 0)

    def state(index):
        return nothing if index < 0 else states[index]

    @functools.lru_cache(maxsize=None)
    def compute(level, start, end):
        if level == 0:
            return state(end)[1] - state(start)[1]
        return best(level - 1, start, end, levels[level - 1][0])

    def allowed(level, start, end, behind, replicas):
        size = sum(state(end)[c] - state(start)[c] for c in (2, 3))
        return memory is None or math.ceil(behind / replicas) * size <= memory

    def reduce_time(level, start, end, replicas):
        size = state(end)[3] - state(start)[3]
        return 4 * (replicas - 1) * size / (replicas * levels[level][1])

    @functools.lru_cache(maxsize=None)
    def best(level, start, end, used):
        workers, bandwidth = levels[level]
        found = math.inf
        if (used == 1 or not straight) and allowed(level, start, end, workers - used, used):
            inner = levels[level - 1][0] if level else 1
            reduce = reduce_time(level, start, end, used) / inner
            found = (compute(level, start, end) + reduce) / used
        if fewer and used > 1:
            found = min(found, best(level, start, end, used - 1))
        for split in range(start + 1, end):
            if not state(start)[0] < state(split)[0] < state(end)[0]:
                continue
            for replicas in range(1, min(used, 2) if straight else used):
                if not allowed(level, split, end, workers - used, replicas):
                    continue
                reduce = reduce_time(level, split, end, replicas)
                stage = (compute(level, split, end) + reduce) / replicas
                if ratio is not None:
                    sent = max(state(split)[4], 0 if end == last else state(end)[4])
                    stage = max(stage, 2 * sent / (replicas * bandwidth) / ratio)
                if stage < found:
                    found = min(found, max(best(level, start, split, used - replicas), stage))
        return found

    found = best(len(levels) - 1, -1, last, levels[-1][0])
    return None if found == math.inf else found


def data_parallel(states, levels):
    seconds, inner = states[-1][1], 1
    for workers, bandwidth in levels:
        reduce = 4 * (workers - 1) * states[-1][3] / (workers * bandwidth)
        seconds = (seconds + reduce / inner) / workers
        inner = workers
    return seconds


def main():
    machines = [[(workers, 1e9)] for workers in range(2, 17)]
    machines += [[(a, 1e10), (b, 1e9)] for a, b in ((2, 1), (1, 4), (2, 2), (4, 2), (3, 4), (2, 8), (4, 4))]
    machines += [[(2, 1e10), (2, 5e9), (2, 1e9)]]
    kinds = [
        (None, None, False, False),
        (1.0, None, False, False),
        (4.0, None, False, True),
        (1.0, None, True, False),
        (None, None, True, True),
        (1.0, 4e9, False, False),
        (1.0, 4e9, False, True),
        (None, 16e9, True, False),
        (1.0, 5e8, True, True),
    ]
    rows = []
    for name in ("alexnet", "vgg16"):
        states = find_states(*read(PROFILES / f"{name}.txt"))
        for levels in machines:
            for kind in kinds:
                ratio, memory, straight, fewer = kind
                rows.append({
                    "profile": name, "states": len(states), "levels": levels, "ratio": ratio,
                    "memory": memory, "straight": straight, "fewer": fewer,
                    "pipeline": optimum(states, levels, *kind),
                    "data_parallel": data_parallel(states, levels),
                })
    text = ",\n".join(json.dumps(row) for row in rows)
    (PROFILES / "optima.json").write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    import sys
    sys.setrecursionlimit(10000)
    main()
