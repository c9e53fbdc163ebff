#!/usr/bin/python3
"""Writes small files of PyTorch's, and the pickles in them, as seeds: torch_corpus.py DIRECTORY."""

import os
import sys
import zipfile

import torch


def main():
    directory = sys.argv[1]
    os.makedirs(directory, exist_ok=True)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    values = {"state": model.state_dict(), "model": model,
              "nested": {"state_dict": model.state_dict(), "epoch": 3},
              "half": {key: value.half() for key, value in model.state_dict().items()},
              "views": {"turned": model[0].weight.detach().t(), "tail": model[0].bias.detach()[1:]}}
    for name, value in values.items():
        for protocol in (2, 4):
            path = os.path.join(directory, f"{name}-{protocol}")
            torch.save(value, path + "-older", pickle_protocol=protocol,
                       _use_new_zipfile_serialization=False)
            torch.save(value, path, pickle_protocol=protocol)
            with zipfile.ZipFile(path) as archive:
                pickle = next(entry for entry in archive.namelist() if entry.endswith("data.pkl"))
                with open(path + "-pickle", "wb") as file:
                    file.write(archive.read(pickle))


if __name__ == "__main__":
    main()
