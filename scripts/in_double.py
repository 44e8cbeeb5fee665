"""Runs transformers' models in float64 throughout, for fixtures of models whose float32 sums are too short."""
import contextlib

import torch


@contextlib.contextmanager
def in_double(model, wanted=True):
    """The model in float64, also where its code converts to float32."""
    if not wanted:
        yield model
        return
    names = {name: getattr(torch, name) for name in ("float32", "float")}
    short = torch.Tensor.float
    try:
        for name in names:
            setattr(torch, name, torch.float64)
        torch.Tensor.float = torch.Tensor.double
        yield model.double()
    finally:
        for name, dtype in names.items():
            setattr(torch, name, dtype)
        torch.Tensor.float = short
