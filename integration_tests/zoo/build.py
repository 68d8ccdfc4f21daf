"""Record -> model, with random weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import torch

from benchmarks.torchvision_on_cpu import torchvision_models

from .record import Record

torchvision_models()  # transformers and timm look for torchvision, which cannot be imported before this


def _transformers(record: Record) -> torch.nn.Module:
    import transformers

    cls = getattr(transformers, record.build)
    settings = {k: dict(v) if isinstance(v, Mapping) else v for k, v in record.settings.items()}
    return cls(cls.config_class(**settings))


def _timm(record: Record) -> torch.nn.Module:
    import timm

    return timm.create_model(record.build, **record.settings)


def _torchvision(record: Record) -> torch.nn.Module:
    return attrgetter(record.build)(torchvision_models())(weights=None, **record.settings)


def _diffusers(record: Record) -> torch.nn.Module:
    import diffusers

    return getattr(diffusers, record.build)(**record.settings)


BUILDERS: Mapping[str, Callable[[Record], Any]] = {
    "transformers": _transformers,
    "timm": _timm,
    "torchvision": _torchvision,
    "diffusers": _diffusers,
}


def build(record: Record) -> torch.nn.Module:
    """The model; weights that start as zeros get noise, so that no result is zero by construction."""
    torch.manual_seed(0)
    model = BUILDERS[record.library](record)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point() and not parameter.any():
                parameter.normal_(std=0.02)
    return model
