"""Prefix scans and sorting."""

from ..op import Kind, Tag, declarer

op = declarer("scan", Kind.SCAN)

op("cumsum(x:T, dim)", "running sum; x already has the result's dtype")
op("cumprod(x:T, dim)", "running product")
op("cummax(x:T, dim) -> 2", "running maximum and its index")
op("cummin(x:T, dim) -> 2", "running minimum and its index")
op("logcumsumexp(x:T, dim)", "running logsumexp", Tag.TRANSCENDENTAL)
op("associative_scan(combine, xs:L, dim, reverse=False)", "running combination by an associative function of prims")
op("sort(x:T, dim, descending=False, stable=False) -> 2", "sorted values and their indices", kind=Kind.LIBRARY)
op("topk(x:T, k, dim, largest=True, sorted=True) -> 2", "k largest or smallest and their indices", kind=Kind.LIBRARY)
