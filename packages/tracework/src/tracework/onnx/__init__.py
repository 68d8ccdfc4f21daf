"""PrimGraphs as ONNX models, and the engines that run them. The package `onnx` is imported when a model is made."""

from .model import Model, convert, why_not
from .reasons import UNWRITTEN
from .table import ONNX_ROWS, Refused, Value, row

__all__ = ["ONNX_ROWS", "UNWRITTEN", "Model", "Refused", "Value", "convert", "row", "why_not"]
