"""Prints every parameter and buffer of models in PyTorch: model, name, shape, kind.

Classifiers are torchvision's, face networks those of tests/golden, with a head of 1000 classes.
"""
import os
import sys

import torch
import torchvision

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
sys.dont_write_bytecode = True
import face_models  # noqa: E402

# Names and shapes are all that is asked for: drawing hundreds of millions of numbers can wait.
for fill in ("normal_", "uniform_"):
    setattr(torch.Tensor, fill, lambda self, *_, **__: self)

for model_name in sys.argv[1:]:
    if model_name in face_models.NAMES:
        model = face_models.build(model_name, classes=1000)
    else:
        model = getattr(torchvision.models, model_name)()
    trained = {name for name, value in model.named_parameters() if value.requires_grad}
    for name, value in model.state_dict().items():
        if name.endswith("num_batches_tracked"):
            continue
        shape = "x".join(str(extent) for extent in value.shape)
        print(model_name, name, shape, "parameter" if name in trained else "buffer")
