"""Wrapper subclasses as libraries have them: two tensors side by side, whole numbers with a scale, one with a __torch_function__ of its own."""

import torch
from torch.utils._pytree import tree_map_only


class Two(torch.Tensor):
    """Each operator runs on both."""

    @staticmethod
    def __new__(cls, a, b):
        facts = dict(strides=a.stride(), dtype=a.dtype, device=a.device, requires_grad=a.requires_grad)
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, **facts)

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __repr__(self):
        return f"{type(self).__name__}({self.a}, {self.b})"

    def __tensor_flatten__(self):
        return ["a", "b"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        return cls(inner["a"], inner["b"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        (a_args, a_kwargs), (b_args, b_kwargs) = (
            tree_map_only(Two, lambda t, name=name: getattr(t, name), (args, kwargs or {})) for name in ("a", "b")
        )
        a, b = func(*a_args, **a_kwargs), func(*b_args, **b_kwargs)
        if isinstance(a, torch.Tensor):
            written = func._schema.arguments and func._schema.name.endswith("_")
            return args[0] if written else cls(a, b)
        if isinstance(a, (tuple, list)):
            return type(a)(cls(x, y) if isinstance(x, torch.Tensor) else x for x, y in zip(a, b))
        return a


class Scaled(torch.Tensor):
    """Whole numbers of eight bits and a scale for each row: operators see the product."""

    @staticmethod
    def __new__(cls, data, scale, dtype):
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, strides=data.stride(), dtype=dtype, device=data.device)

    def __init__(self, data, scale, dtype):
        self.numbers, self.scale = data, scale

    @classmethod
    def of(cls, tensor):
        scale = tensor.abs().amax(-1, keepdim=True) / 127
        return cls((tensor / scale).round().to(torch.int8), scale, tensor.dtype)

    def whole(self):
        return (self.numbers.to(self.scale.dtype) * self.scale).to(self.dtype)

    def __tensor_flatten__(self):
        return ["numbers", "scale"], {"dtype": self.dtype}

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Scaled(inner["numbers"], inner["scale"], context["dtype"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            return Scaled(args[0].numbers, args[0].scale, args[0].dtype)
        args, kwargs = tree_map_only(Scaled, Scaled.whole, (args, kwargs or {}))
        return func(*args, **kwargs)


class Asked(Scaled):
    """A linear layer is asked for by its name."""

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Asked(inner["numbers"], inner["scale"], context["dtype"])

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.nn.functional.linear:
            x, weight, bias = (*args, None)[:3] if len(args) < 3 else args
            found = (x @ weight.numbers.to(x.dtype).t()) * weight.scale.squeeze(-1)
            return found if bias is None else found + bias
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def two(*sizes, seed=0, **facts):
    made = torch.Generator().manual_seed(seed)
    return Two(torch.randn(sizes, generator=made, **facts), torch.randn(sizes, generator=made, **facts))


def plain(*sizes, seed=1):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed))
