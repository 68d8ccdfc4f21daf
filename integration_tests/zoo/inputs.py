"""INPUTS: what each kind of model is called with. Labels are given where the model computes its loss from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from .recent import PICTURE
from .record import LENGTH, VOCABULARY, Record

BATCH = 2


def _ids(length: int = LENGTH) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (BATCH, length))


def _mask() -> torch.Tensor:
    mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
    mask[1, -4:] = 0
    return mask


def _tokens(record: Record) -> dict[str, Any]:
    inputs = {"input_ids": _ids(), "attention_mask": _mask()}
    return inputs if record.build.startswith("IBert") else {**_without_mask(record, inputs), "labels": _ids()}


def _without_mask(record: Record, inputs: dict[str, Any]) -> dict[str, Any]:
    """FNet has no attention to mask."""
    return {k: v for k, v in inputs.items() if k != "attention_mask" or not record.build.startswith("FNet")}


def _causal(record: Record) -> dict[str, Any]:
    ids = _ids()
    return {"input_ids": ids, "labels": ids, "use_cache": False}


def _translation(record: Record) -> dict[str, Any]:
    return {"input_ids": _ids(), "attention_mask": _mask(), "labels": _ids(8)}


def _pair(record: Record) -> dict[str, Any]:
    return {"input_ids": _ids(), "attention_mask": _mask()}


def _image(side: int) -> torch.Tensor:
    return torch.randn(BATCH, 3, side, side)


def _side(record: Record) -> int:
    side = record.settings.get("image_size", record.side)
    return side[0] if isinstance(side, list) else side


def _boxes(count: int, side: float) -> torch.Tensor:
    """Corners in an image of that side."""
    corners = torch.rand(count, 2) * side * 0.5
    return torch.cat([corners, corners + side * (0.2 + 0.3 * torch.rand(count, 2))], -1)


def _targets(record: Record) -> dict[str, Any]:
    """Images of two sizes and what is on them, as detectors are trained."""
    counts = (2, 3)
    return {
        "images": [torch.rand(3, record.side, record.side + 8 * n) for n in counts],
        "targets": [{"boxes": _boxes(n, record.side), "labels": torch.randint(1, 4, (n,))} for n in counts],
    }


def _found(record: Record) -> dict[str, Any]:
    """An image and the boxes on it, as sets are matched: centres and sizes as parts of the image."""
    labels = [{"class_labels": torch.randint(0, 3, (n,)), "boxes": 0.2 + 0.4 * torch.rand(n, 4)} for n in (1, 2)]
    return {"pixel_values": _image(_side(record)), "labels": labels}


def _ids_with_picture() -> torch.Tensor:
    """Four tokens after the first stand for a picture."""
    ids = torch.randint(3, PICTURE - 3, (BATCH, LENGTH))
    ids[:, 1:5] = PICTURE
    return ids


def _picture_in_text(record: Record) -> dict[str, Any]:
    ids = _ids_with_picture()
    return {
        "input_ids": ids,
        "pixel_values": _image(32),
        "token_type_ids": (ids == PICTURE).long(),
        "labels": ids,
        "use_cache": False,
    }


def _patches_in_text(record: Record) -> dict[str, Any]:
    """Each picture is 4 by 4 patches of two equal frames, of which 2 by 2 become a token."""
    ids = _ids_with_picture()
    ids[:, 0] = PICTURE - 2
    return {
        "input_ids": ids,
        "pixel_values": torch.randn(BATCH * 16, 3 * 2 * 8 * 8),
        "image_grid_thw": torch.tensor([[1, 4, 4]] * BATCH),
        "mm_token_type_ids": (ids == PICTURE).int(),
        "labels": ids,
        "use_cache": False,
    }


INPUTS: Mapping[str, Callable[[Record], dict[str, Any]]] = {
    "tokens": _tokens,
    "pair": _pair,
    "causal": _causal,
    "translation": _translation,
    "pixels": lambda r: {"pixel_values": _image(_side(r)), "labels": torch.randint(0, 2, (BATCH,))},
    "image only": lambda r: {"pixel_values": _image(_side(r)), "noise": torch.rand(BATCH, 16)},
    "image": lambda r: {"x": _image(r.side)},
    "wave": lambda r: {"input_values": torch.randn(BATCH, 1600), "labels": torch.randint(1, VOCABULARY, (BATCH, 4))},
    "spectrum": lambda r: {"input_values": torch.randn(BATCH, 32, 32)},
    "mel": lambda r: {"input_features": torch.randn(BATCH, 16, 32), "labels": _ids(8)},
    "image and text": lambda r: {"input_ids": _ids(), "pixel_values": _image(32), "return_loss": r.build == "CLIPModel"},
    "series": lambda r: {"past_values": torch.randn(BATCH, 32, 3), "future_values": torch.randn(BATCH, 8, 3)},
    "generate": lambda r: {"input_ids": _ids(6)},
    "speech": lambda r: {"input_values": torch.randn(BATCH, 1600), "labels": torch.randint(0, 2, (BATCH,))},
    "spectrogram": lambda r: {"input_features": torch.randn(BATCH, 1, 64, 8), "is_longer": torch.tensor([[False], [True]])},
    "points": lambda r: {"pixel_values": _image(64), "input_points": torch.rand(BATCH, 1, 3, 2) * 64},
    "boxes": _found,
    "targets": _targets,
    "segmented": lambda r: {"input": _image(r.side)},
    "frames": lambda r: {"image1": _image(128), "image2": _image(128), "num_flow_updates": 2},
    "denoising": lambda r: {
        "sample": torch.randn(BATCH, 4, 8, 8),
        "timestep": torch.tensor([3, 500]),
        "encoder_hidden_states": torch.randn(BATCH, 5, 16),
    },
    "picture in text": _picture_in_text,
    "patches in text": _patches_in_text,
    "patches and text": lambda r: {
        "input_ids": _ids(),
        "pixel_values": torch.randn(BATCH, 20, 3 * 8 * 8),
        "pixel_attention_mask": torch.ones(BATCH, 20, dtype=torch.long),
        "spatial_shapes": torch.tensor([[4, 5], [2, 10]]),
    },
    "picture alone": lambda r: {"pixel_values": _image(64)},
    "frames of a film": lambda r: {"pixel_values_videos": torch.randn(BATCH, 4, 3, 32, 32)},
    "points in a picture": lambda r: {
        "pixel_values": _image(64),
        "input_points": torch.rand(BATCH, 1, 3, 2) * 64,
        "input_labels": torch.ones(BATCH, 1, 3, dtype=torch.int),
    },
    "spoken frames": lambda r: {
        "input_features": torch.randn(BATCH, 64, 16),
        "attention_mask": torch.ones(BATCH, 64, dtype=torch.bool),
        "labels": torch.randint(1, VOCABULARY, (BATCH, 3)),
    },
    "spoken": lambda r: {"input_values": torch.randn(BATCH, 3200), "labels": _ids(8)},
    "sound": lambda r: {"input_values": torch.randn(BATCH, 1, 512)},
    "latent image": lambda r: {"sample": _image(16)},
    "denoising of classes": lambda r: {
        "hidden_states": torch.randn(BATCH, 4, 8, 8),
        "timestep": torch.tensor([3, 500]),
        "class_labels": torch.tensor([1, 7]),
    },
}

SIZES = ((3, 12), (5, 9))
"""Batches and lengths that a model is called with after its own; the second brings nothing new."""


def other_sizes(record: Record, inputs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The inputs with other batches, and the tokens with other lengths; nothing where the sizes lie in lists or are given to the model."""
    if record.resizes and not any(isinstance(value, list) for value in inputs.values()):
        for batch, length in SIZES:
            resized = {
                id(value): _resized(value, batch, length) for value in inputs.values()
            }  # labels may be the tokens themselves
            yield {key: resized[id(value)] for key, value in inputs.items()}


def _resized(value: Any, batch: int, length: int) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    value = value[torch.arange(batch) % BATCH]
    return value[:, :length].contiguous() if value.shape[1:] == (LENGTH,) and not value.is_floating_point() else value
