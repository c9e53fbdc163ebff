"""Verification figures from the definitions, by NumPy: verification_reference.py PAIRS.json"""
import json
import sys

import numpy

with open(sys.argv[1], encoding="utf-8") as file:
    data = json.load(file)
same = numpy.array(data["same"])
rows = numpy.array(data["embeddings"]).reshape(len(same), 2, -1)
distances = numpy.square(rows[:, 0] - rows[:, 1]).sum(axis=1)

thresholds = numpy.arange(0, 4, 0.01)
right = (distances[None, :] < thresholds[:, None]) == same[None, :]
accuracies = []
for held_out in numpy.array_split(numpy.arange(len(same)), 10):
    others = numpy.delete(right, held_out, axis=1).mean(axis=1)
    accuracies.append(right[numpy.argmax(others)][held_out].mean())

rates = []
for far in (1e-2, 1e-3, 1e-4, 1e-5):
    # The lowest threshold on the similarity with no more than this share of false accepts.
    similarity = 1 - distances / 2
    candidates = numpy.sort(similarity[~same])
    false_accepts = numpy.array([(similarity[~same] > limit).mean() for limit in candidates])
    limit = candidates[numpy.argmax(false_accepts <= far + 1e-12)]
    rates.append((similarity[same] > limit).mean())

own, other = distances[same], distances[~same]
area = (own[:, None] < other[None, :]).mean() + (own[:, None] == other[None, :]).mean() / 2

print(json.dumps({"auc": area, "accuracy": numpy.mean(accuracies), "deviation": numpy.std(accuracies),
                  "threshold": thresholds[numpy.argmax(right.mean(axis=1))], "tar": rates}))
