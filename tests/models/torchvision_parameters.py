"""Prints every parameter and buffer of torchvision's models: model, name, shape, kind."""
import sys

import torch
import torchvision

# Names and shapes are all that is asked for: drawing hundreds of millions of numbers can wait.
for fill in ("normal_", "uniform_"):
    setattr(torch.Tensor, fill, lambda self, *_, **__: self)

for model_name in sys.argv[1:]:
    model = getattr(torchvision.models, model_name)()
    trained = {name for name, _ in model.named_parameters()}
    for name, value in model.state_dict().items():
        if name.endswith("num_batches_tracked"):
            continue
        shape = "x".join(str(extent) for extent in value.shape)
        print(model_name, name, shape, "parameter" if name in trained else "buffer")
