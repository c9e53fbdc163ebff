"""State dictionaries of PyTorch as weights."""
import numpy as np

from ._millrace import InputError, model


def _array(name, value):
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float().numpy() if value.is_floating_point() else value.numpy()
    if not isinstance(value, np.ndarray):
        raise InputError(f"'{name}' is a {type(value).__name__}, not a tensor.")
    return value


def model_of_state(state_dict, name, options):
    if not hasattr(state_dict, "items"):
        raise InputError(f"A {type(state_dict).__name__} is no state dictionary; a network's is network.state_dict().")
    arrays = {key: _array(key, value) for key, value in state_dict.items()}
    floats = {key: np.ascontiguousarray(array, np.float32) for key, array in arrays.items()
              if np.issubdtype(array.dtype, np.floating)}
    for key, array in arrays.items():  # counters of batches are passed over
        if key not in floats and not np.issubdtype(array.dtype, np.integer):
            raise InputError(f"'{key}' has the type {array.dtype}, which weights cannot have.")
    return model(name, state=floats, **options)
