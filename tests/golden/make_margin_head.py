#!/usr/bin/python3
"""Writes margin_head.json: losses and gradients of small margin heads, by PyTorch in double.

With --check it makes them again and fails if the file differs.
"""
import json
import os
import sys

import torch

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "margin_head.json")
CASES = [  # margin (m1, m2, m3), scale, exact gradient
    ((1.0, 0.0, 0.0), 64.0, True),
    ((1.0, 0.5, 0.0), 64.0, True),
    ((1.0, 0.5, 0.0), 64.0, False),
    ((1.0, 0.0, 0.4), 64.0, True),
    ((1.0, 0.3, 0.2), 30.0, True),
    ((1.35, 0.1, 0.05), 16.0, True),
]


def numbers(tensor):
    return [float(f"{value:.9g}") for value in tensor.flatten().tolist()]


def make_case(seed, margin, scale, exact, batch=5, dimension=12, classes=17):
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(batch, dimension, generator=generator)
    embeddings = torch.nn.functional.normalize(embeddings).double().requires_grad_()
    centres = torch.randn(classes, dimension, generator=generator).double().requires_grad_()
    labels = torch.randint(classes, (batch,), generator=generator)
    cosines = embeddings @ torch.nn.functional.normalize(centres).T
    targets = cosines.gather(1, labels[:, None])
    changed = torch.cos(margin[0] * torch.acos(targets) + margin[1]) - margin[2]
    if not exact:
        changed = targets + (changed - targets).detach()
    logits = scale * cosines.scatter(1, labels[:, None], changed)
    loss = torch.nn.functional.cross_entropy(logits, labels)
    loss.backward()
    return {"batch": batch, "dimension": dimension, "classes": classes, "margin": margin,
            "scale": scale, "exact_gradient": exact, "embeddings": numbers(embeddings),
            "centres": numbers(centres), "labels": labels.tolist(), "loss": loss.item(),
            "of_embeddings": numbers(embeddings.grad), "of_centres": numbers(centres.grad)}


def close(a, b):
    if isinstance(a, list):
        return len(a) == len(b) and all(close(x, y) for x, y in zip(a, b))
    return a == b if isinstance(a, bool) else abs(a - b) <= 1e-7 * (1 + abs(b))


def main():
    torch.set_num_threads(1)
    cases = [make_case(seed, *case) for seed, case in enumerate(CASES)]
    if "--check" not in sys.argv[1:]:
        with open(PATH, "w") as file:
            file.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
        return
    with open(PATH) as file:
        stored = json.load(file)
    made = json.loads(json.dumps(cases))
    same = len(stored) == len(made) and all(
        old.keys() == new.keys() and all(close(new[key], old[key]) for key in new)
        for old, new in zip(stored, made))
    if not same:
        sys.exit(f"{PATH} differs from what PyTorch gives now; run this without --check.")


if __name__ == "__main__":
    main()
