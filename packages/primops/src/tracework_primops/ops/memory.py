"""Copies, layouts, devices: what moves bytes and computes nothing."""

from ..op import Kind, Tag, declarer

op = declarer("memory", Kind.MEMORY)

op("clone(x:T)", "a copy; eager's strides for it are in the node's spec")
op("copy_into(dst:T, src:T)", "write src to the graph input dst; the result is the new value of dst", Tag.MUTATES)
op("contiguous(x:T, strides)", "x laid out with these strides")
op("device_put(x:T, device)", "x on another device", kind=Kind.LIBRARY)
