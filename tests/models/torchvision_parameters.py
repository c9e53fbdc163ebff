"""Prints every parameter and buffer of torchvision's models: model, name, shape, kind."""
import sys

import torchvision

for model_name in sys.argv[1:]:
    model = getattr(torchvision.models, model_name)()
    trained = {name for name, _ in model.named_parameters()}
    for name, value in model.state_dict().items():
        if name.endswith("num_batches_tracked"):
            continue
        shape = "x".join(str(extent) for extent in value.shape)
        print(model_name, name, shape, "parameter" if name in trained else "buffer")
