"""Tensors, modules, settings of torch."""
