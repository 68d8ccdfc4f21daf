"""NumPy's functions on arrays in a graph: results, dtypes, memory order, flags, what shares memory with what and whose it is, and writes
are NumPy's own.

EXPRESSIONS are parts of one graph for arrays of floats; for other dtypes and orders of memory some are left to NumPy. LEFT are always.
"""

import re

import numpy as np
import pytest
import tracework
from tracework_capture import Unsupported, explain
from tracework_capture.values.arrays.ufuncs import UFUNCS
from tracework_capture.values.protocol.calls import CALLS, Policy

EXPRESSIONS = """
np.abs(A) | np.all(A>0) | np.any(A>0,axis=0) | np.allclose(A,B) | np.amax(A,0) | np.angle(A) | np.append(A,B) |
np.append(A,B,axis=0) | np.argmax(A) | np.argsort(A) | np.argsort(A,axis=0) | np.around(A,1) | np.array_equal(A,B) |
np.array_equiv(A,B) | np.array_split(V,2) | np.atleast_1d(V) | np.atleast_2d(V) | np.atleast_3d(V) | np.atleast_3d(A) |
np.atleast_1d(V,A) | np.average(A) | np.average(A,axis=0) | np.average(V,weights=V) | np.broadcast_to(W[:,None],(3,4)) |
np.broadcast_arrays(W[:,None],A) | np.broadcast_shapes((3,1),(4,)) | np.clip(A,-1,1) | np.clip(A,None,1) |
np.clip(A,min=0) | np.column_stack((W,W)) | np.row_stack((W,W)) | np.concatenate((V,W)) |
np.concatenate((A,B),axis=None) | np.convolve(V,W) | np.convolve(V,W,mode='same') | np.convolve(V,W,'valid') |
np.copy(A) | np.copyto(A,B) | np.corrcoef(A) | np.corrcoef(V,V*2) | np.count_nonzero(A>0) | np.cov(A) |
np.cov(A,rowvar=False) | np.cross(A[:,:3],B[:,:3]) | np.cumprod(A) | np.cumsum(A,axis=1) | np.diag(V) | np.diag(M) |
np.diag(M,1) | np.diag(M,-1) | np.diagflat(V) | np.diagonal(M) | np.diagonal(C3) | np.diagonal(C3,1,1,2) | M.diagonal() |
M.trace() | np.trace(M) | np.trace(C3) | np.diff(A) | np.diff(V,n=2) | np.diff(V,prepend=0.0) | np.digitize(V,W) |
np.divmod(A,2.0) | np.dot(A,M) | np.dot(C3,np.swapaxes(C3,1,2)) | np.dsplit(C3,2) | np.dstack((A,B)) | np.dstack((V,V)) |
np.ediff1d(V) | np.einsum('ij,jk->ik',A,M) | np.einsum('ii',M) | np.einsum('ij,jk',A,M) | np.expand_dims(A,0) |
np.expand_dims(A,(0,2)) | np.eye(3) | np.fill_diagonal(M,0.0) | np.fix(A) | np.flip(A) | np.flip(A,0) |
np.flip(A,(0,1)) | np.fliplr(A) | np.flipud(A) | A[::-1] | A[:,::-1] | A[::-2,1:] | V[::-1] | np.full_like(A,2.0) |
np.full((2,),V[0]) | np.geomspace(1,8,4) | np.gradient(V) | np.gradient(A) | np.gradient(V,2.0) | np.gradient(A,axis=0) |
np.heaviside(A,0.5) | np.histogram(V) | np.hsplit(A,2) | np.hstack((A,B)) | np.hypot(A,B) | np.i0(V) | np.identity(3) |
np.imag(A) | np.real(A) | np.real_if_close(A) | A.real | A.imag | np.indices((2,3)) | np.inner(V,V) | np.inner(A,B) |
np.insert(V,1,2.0) | np.delete(V,1) | np.interp(V,W,W) | np.isclose(A,B) | np.iscomplex(A) | np.iscomplexobj(A) |
np.isfinite(A) | np.isin(I,[1,2]) | np.isneginf(A) | np.isposinf(A) | np.isreal(A) | np.isrealobj(A) | np.isscalar(A) |
np.kron(A,B) | np.kron(V,W) | np.ldexp(A,2) | np.lexsort((V,I)) | np.linspace(0,1,5) | np.linspace(V[0],1,5) |
np.linalg.cholesky(S) | np.linalg.det(M) | np.linalg.eigh(S) | np.linalg.eigvalsh(S) | np.linalg.inv(M) |
np.linalg.matrix_power(M,3) | np.linalg.matrix_rank(M) | np.linalg.multi_dot([M,M,M]) | np.linalg.norm(A) |
np.linalg.norm(A,axis=1) | np.linalg.norm(V,1) | np.linalg.norm(V,np.inf) | np.linalg.norm(V,ord=2) |
np.linalg.norm(A,'fro') | np.linalg.pinv(M) | np.linalg.qr(M) | np.linalg.slogdet(M) | np.linalg.solve(M,M[0]) |
np.linalg.svd(M) | np.linalg.cond(M) | np.linalg.tensorinv(np.eye(4).reshape(4,2,2)) | np.logspace(0,1,4) |
np.matmul(A,M) | np.matrix_transpose(A) | np.max(A) | np.maximum(A,B) | np.mean(A,axis=0) | np.median(A) |
np.median(A,axis=0) | np.meshgrid(V,W) | np.meshgrid(V,W,indexing='ij') | np.mgrid[0:2,0:3] | np.min(A) | np.modf(A) |
np.moveaxis(C3,0,1) | np.nan_to_num(A) | np.nan_to_num(A,nan=1.0) | np.nanmax(A) | np.nanmean(A) | np.nansum(A) |
np.nanmin(A) | np.nanstd(A) | np.ndim(A) | np.ones_like(A) | np.outer(V,W) | np.pad(A,1) | np.pad(A,((1,0),(0,2))) |
np.pad(V,2,mode='edge') | np.pad(V,1,constant_values=2.0) | np.pad(V,2,mode='reflect') | np.pad(V,2,'wrap') |
np.partition(V,2) | np.argpartition(V,2) | np.percentile(A,50) | np.percentile(A,[25,75],axis=0) | np.quantile(A,0.3) |
np.quantile(V,V[0]*0+0.3) | np.piecewise(V,[V<0,V>=0],[-1,1]) | np.polyval([1,2,3],V) | np.prod(A) |
np.ptp(A) | np.take_along_axis(A,np.array([[0],[1],[2]]),1) | np.ravel(A) | np.repeat(V,2) | np.repeat(V,[1,2,1,2,1]) |
np.reshape(A,(4,3)) | np.reshape(A,-1) | A.reshape(2,-1) | np.resize(V,(2,4)) | np.roll(A,1) | np.roll(A,1,axis=0) |
np.rollaxis(C3,2) | np.rot90(A) | np.rot90(A,2) | np.rot90(A,k=3) | np.rot90(A,4) | np.round(A,2) |
np.searchsorted(np.sort(V),W) | np.select([V<0,V>0],[V,V*2]) | np.select([V<0],[V],default=1.0) | np.sinc(V) |
np.size(A) | np.sort(A) | np.sort(A,axis=0) | np.sort(A,axis=None) | np.split(A,2,axis=1) | np.squeeze(A[None]) |
np.stack((A,B)) | np.std(A) | np.std(A,ddof=1) | np.sum(A) | np.swapaxes(A,0,1) | np.take(A,[0,1],axis=0) |
np.take(V,1) | np.tensordot(A,B) | np.tensordot(A,M,axes=1) | np.tensordot(A,M,axes=([1],[0])) | np.tile(V,3) |
np.tile(A,(2,1)) | np.trapezoid(V) | np.transpose(A) | np.tri(3) | np.tril(M) | np.tril_indices(3) |
np.tril_indices_from(M) | np.triu(M) | np.triu_indices(3) | np.trunc(A) | np.unravel_index(3,(2,3)) | np.unwrap(V) |
np.vander(V) | np.var(A) | np.vdot(A,B) | np.vecdot(A,B) | np.vsplit(M,2) | np.vstack((A,B)) | np.where(A>0,A,B) |
np.zeros_like(A) | np.fft.fft(V) | np.fft.rfft(V) | np.fft.irfft(np.fft.rfft(V)) | np.fft.ifft(V) | np.fft.fft2(A) |
np.fft.fftfreq(5) | np.fft.rfftfreq(5) | np.fft.fftshift(V) | np.fft.fftshift(A) | np.fft.fftshift(A,axes=0) |
np.fft.ifftshift(V) | np.fft.fftn(A) | A.all() | A.argmax() | A.argmin(1) | A.astype(np.float32) | A.clip(0,1) |
A.conj() | A.copy() | A.cumsum(0) | A.dot(M) | A.flat[3] | A.flatten() | A.item(0) | A.max() | A.mean() | A.prod() |
 A.ravel() | A.repeat(2) | A.round(1) | A.sort() | A.squeeze() | A.std() | A.sum() | A.swapaxes(0,1) |
A.take([0,1]) | A.tolist() | A.transpose() | A.var() | A.view(np.int64) | A.fill(1.0) | A.T | A.flags.writeable |
A.flags['C_CONTIGUOUS'] | np.choose(np.array([0,1,0]),[W,W]) | len(A) | list(V) | sum(V) | V[I-1] |
A[[0,1],[1,2]] | A[...,0] | A[None] | A[1:,::2] | float(V[0]) | A.mT | abs(A) | -A | ~(A>0) | divmod(A,2.0) | A@M |
A//2.0 | A%2.0 | A**2 | 2**A | I//2 | I%3 | I**2 | I<<1 | I/2 | I//I | I%I | np.float32(V[0]) | np.add.reduce(A) |
np.add.reduce(A,axis=1) | np.multiply.outer(V,W) | np.add.accumulate(V) | np.add.outer(V,W) | np.maximum.reduce(A) |
np.add.at(V,[0,0],1.0) | np.logical_and.reduce(A>0) | np.minimum.accumulate(V) | np.cbrt(A) | np.square(A) |
np.spacing(A) | np.nextafter(A,B) | np.gcd(I,2) | np.lcm(I,2) | np.frexp(A) | np.conjugate(A) | np.positive(A) |
np.add(A,B,where=A>0,out=A) | np.sin(A,out=B) | np.apply_over_axes(np.sum,A,[0]) | list(np.ndindex(2,2)) |
np.ascontiguousarray(A.T) | np.asfortranarray(A) | np.asanyarray(A) | np.array([V[0],V[1]]) |
np.array([[1.0,V[0]],[V[1],2.0]]) | np.array(V,ndmin=2) | np.array(A,order='F') | np.block([[A,B],[B,A]]) | np.c_[W,W] |
np.r_[V,W] | np.r_[0:3] | np.ix_([0,1],[1,2]) | A[np.ix_([0,1],[1,2])] | np.iinfo(np.int32).max |
np.finfo(np.float32).eps | np.result_type(A,F32) | np.can_cast(np.int32,np.int64) | np.issubdtype(A.dtype,np.floating) |
np.common_type(A) | np.min_scalar_type(3) | np.dtype(float) | A.dtype.kind | A.dtype==np.float64 | str(A.dtype) |
np.cumulative_sum(V) | np.astype(A,np.float32) | np.concat((A,B)) | np.permute_dims(A) | np.acos(A*0.1) | np.pow(A,2) |
np.linalg.vector_norm(A) | np.linalg.matrix_norm(A) | np.linalg.outer(V,W) | np.linalg.trace(M) | np.linalg.diagonal(M) |
np.bitwise_count(I) | np.unstack(A) | np.divide(A,B,out=np.zeros_like(A),where=B!=0) | np.nanargmax(A) |
np.nancumsum(A) | np.nanprod(A) | np.nanvar(A) | np.nanmedian(A) | np.nanquantile(A,0.5) | np.exp(A,dtype=np.float64) |
np.sum(A,where=A>0) | np.max(A,initial=0.0) | np.sum(A,initial=1.0) | np.sum(A,axis=(0,1)) | np.sum(A,out=np.empty(())) |
np.mean(A,axis=1,out=W) | np.tri(3,4,1) | np.vander(V,3) | np.isin(V,W) | np.sign(A) | np.signbit(A) |
np.float_power(A*A,2) | np.logaddexp(A,B) | np.trapezoid(A,dx=0.5) | np.roots([1,2]) | np.polyadd([1],[2]) |
np.cross(W,W+1) | np.linalg.cross(W,W+1) | A[1:,[0,1]] | C3[:,0,[0,1]] | C3[...,[0,1]] | C3[:,[[0,1],[1,2]]] |
C3.swapaxes(0,2)[:,[0,1]] | A+F32 | np.where(A>0,A,F32) | np.isclose(A,F32) | np.ones((3,1))+A.T.copy().T |
C3.transpose(1,0,2)+np.asfortranarray(C3).swapaxes(0,1) | np.fft.fft(C3,axis=1) | np.fft.rfftn(C3.T) | np.dot(2,A) |
np.dot(I[0],C3.T) | np.round(np.array(I[0]),1) |
np.concatenate((C3.T,C3.transpose(2,1,0).copy())) | np.diff(A,n=0) | np.diff(C3.T,axis=0) | np.take(A,1,axis=0) |
np.take(C3.T,[0,1],axis=1) | np.roll(C3.T,1,axis=0) | np.roll(C3.T,1) | np.sort(C3.T,axis=0) | np.tril(M.T) |
np.round(C3.transpose(1,0,2),1) | np.zeros_like(C3.transpose(1,0,2)) | np.full_like(C3.T,2) | np.repeat(C3.T,2,axis=1) |
np.tile(C3.T,2) | np.sum(C3.transpose(2,0,1),axis=0) | np.max(C3.T,axis=0) |
np.cumsum(C3.transpose(2,0,1),axis=1) | np.mean(A,where=A>0) | np.mean(A,axis=0,where=A.T.copy().T>0) |
np.mean(A,axis=1,where=np.zeros((3,4),bool)) | np.std(A,axis=0,where=A>-2,ddof=1) | np.var(A,where=A>0) |
np.var(A,mean=np.mean(A),correction=1) | np.all(A,where=A>0) | np.any(A,where=A>0,axis=0) | A.mean(where=W[:,None]>0) |
A.std(where=A>0) | abs(A) | np.amin(A,1) | np.asarray(A) | np.bartlett(5)*V |
np.blackman(5)*V | np.hamming(5)*V | np.hanning(5)*V | np.kaiser(5,3.0)*V | np.empty_like(A).shape | np.complex128(V) |
np.float64(V) | np.float32(V) | np.float64(V.sum()) | np.float64(np.array(V[0])) | np.int8(I) |
np.fft.hfft(V) | np.fft.ihfft(V) | np.fft.ifft2(A) | np.fft.ifftn(A) | np.fft.rfft2(A) | np.fft.irfft2(A) | np.fft.irfftn(A) |
np.linalg.svdvals(M) | np.linalg.tensorsolve(np.eye(4).reshape(4,2,2),V[:4]) | np.nanargmin(A) |
np.nanargmin(A,axis=1) | np.nanpercentile(A,50) | np.promote_types(A.dtype,np.int8) |
np.put_along_axis(A,np.array([[0],[1],[2]]),7,1) | A.put([0,5],[1,2]) | np.ravel_multi_index((1,2),(3,4))
"""
OF_DATA = """
np.nonzero(A>0) | A.nonzero() | np.where(A>0) | np.argwhere(A>0) | np.flatnonzero(V>0) | np.extract(A>0,A) | A[A>0] | np.nonzero(V)
"""
OF_OPEN_SIZES = """
np.tile(A,(2,1)) | np.pad(A,1) | np.pad(A,1,mode='edge') | np.diff(A) | np.isclose(A,A) | np.nan_to_num(A) | np.copy(A) |
np.full(A.shape,2.5) | np.full_like(A,2.5) | np.zeros_like(A) | np.ones(A.shape) | np.moveaxis(A,0,1) | np.expand_dims(A,0) |
np.atleast_3d(A) | np.array(A,ndmin=3) | np.vstack((A,A)) | np.hstack((A,A)) | np.stack((A,A)) | np.concatenate((A,A)) |
np.split(A,2,axis=1) | np.rot90(A) | np.outer(A,A) | np.trace(A) | np.tril(A) | np.triu(A,1) | np.ptp(A) |
np.sum(A,axis=0) | np.sum(A,where=A>0) | np.max(A,initial=0.0) | np.prod(A,0) | np.std(A) | np.mean(A) | np.shape(A) |
np.argmax(A,0) | np.cumsum(A,1) | np.add.reduce(A,1) | A.max(1,keepdims=True) | np.mean(A,0,where=A<9) | np.var(A,where=A<9) |
np.add.outer(A,[1,2]) | np.tile(A,(2,3)) | np.tile(A,(2,1,1)) | np.pad(A[:,0],(0,9-len(A))) | np.pad(A,(1,len(A))) |
np.pad(A,((2,1),(0,3)),mode='edge') | np.pad(A,((2,1),(0,3)),mode='reflect') | np.pad(A,((7,len(A)),(0,9)),mode='reflect') |
np.pad(A,((7,1),(0,9)),mode='symmetric') | np.pad(A,((7,len(A)),(0,9)),mode='wrap') |
len(A)+A | len(A)-A | len(A)*A | len(A)/(A*A+1) | len(A)//(A*A+1) | len(A)%(A*A+1) | len(A)**A | len(A)-np.arange(len(A)) |
len(A)<<np.arange(4) | len(A)&np.arange(4) | len(A)>A | np.full(A.size//A.shape[0],2.0) | np.full(1+A.size%len(A),2.0) |
np.clip(np.arange(9),1,len(A))
"""
"""One graph for any number of rows."""
LEFT = """
np.unique(I) | np.bincount(I) | np.linalg.eigvals(M) | A.tobytes() | max(V) | I**I |
np.sum(A,axis=()) | np.trim_zeros(V) | np.vectorize(str)(V) | np.correlate(V,W) | np.matvec(A,V[:4]) | np.vecmat(W,A)
"""
KINDS = (
    ("float64", "c"),
    ("float64", "backwards"),
    ("float32", "f"),
    ("int64", "every second"),
    ("complex128", "c"),
)
SIZES = {"A": (3, 4), "B": (3, 4), "M": (4, 4), "V": (5,), "W": (3,), "C3": (2, 3, 4)}
BACKWARDS = "A = A[::-1]; B = B[:, ::-1]; M = M[::-1, ::-1]; V = V[::-1]; W = W[::-1]; I = I[::-1]; C3 = C3[:, ::-1]"
TOLERANCE = {"float16": 2e-3, "float32": 2e-5, "complex64": 2e-5, "float64": 1e-10, "complex128": 1e-10}


def listed(text):
    return [row.strip() for row in text.replace("\n", " ").split(" | ")]


def test_every_function_with_a_row_is_called():
    """But for ufuncs, classes of numbers and random numbers, of which other files have tables."""
    elsewhere = r"array_converter|normalize_axis_\w+|errstate|broadcast|isnat|u?int\d+|float\d+|complex\d+"
    called = set(re.findall(r"\w+", " ".join((EXPRESSIONS, OF_DATA, OF_OPEN_SIZES, LEFT)))) | set(UFUNCS)
    rows = [row.name for row in CALLS.values() if row.name.startswith(("numpy.", "ndarray.")) and row.policy is not Policy.BREAK]
    names = {name.rpartition(".")[2].strip("_") for name in rows if not name.startswith("numpy.random.")}
    assert sorted(name for name in names - called if not re.fullmatch(elsewhere, name)) == []


def array(numbers, kind, order, sizes):
    made = numbers.normal(size=sizes) * 2
    if kind == "bool":
        made = made > 0
    elif kind == "int64":
        made = np.round(made)
    elif kind == "complex128":
        made = made + 1j * numbers.normal(size=sizes)
    made = made.astype(kind)
    if order == "f":
        return np.asfortranarray(made)
    if order == "every second":
        wide = np.zeros([2 * n for n in sizes], kind)
        wide[tuple(slice(None, None, 2) for _ in sizes)] = made
        return wide[tuple(slice(None, None, 2) for _ in sizes)]
    return made


def arrays(kind, order):
    numbers = np.random.default_rng(0)
    made = {name: array(numbers, kind, order, sizes) for name, sizes in SIZES.items()}
    positive = 20 * np.eye(4) + 0.1 * np.arange(16.0).reshape(4, 4) + 0.1 * np.arange(16.0).reshape(4, 4).T
    return made | {"I": np.array([3, 1, 2, 3, 1]), "F32": np.ones((3, 4), np.float32), "S": positive.astype(float)}


def program(text, order="c"):
    """The expression between two operations on arrays."""
    before = BACKWARDS if order == "backwards" else "pass"
    lines = (
        f"def function({', '.join(arrays('bool', 'c'))}):",
        before,
        "before = A + A",
        f"found = {text}",
        "return before, found",
    )
    names = {"np": np}
    exec("\n    ".join(lines), names)
    return names["function"]


def outcome(function, given):
    """("gives", result) or ("raises", class)"""
    try:
        return "gives", function(**given)
    except Exception as error:
        return "raises", type(error)


def leaves(found):
    if isinstance(found, (tuple, list)):
        return [leaf for part in found for leaf in leaves(part)]
    return [found]


def facts(leaf):
    """Everything but numbers; strides of dims with one item mean nothing."""
    if not isinstance(leaf, np.ndarray):
        return type(leaf)
    steps = [stride for stride, size in zip(leaf.strides, leaf.shape, strict=True) if size > 1] if leaf.size else []
    return leaf.dtype, leaf.shape, steps, leaf.flags.writeable, leaf.flags.owndata


def agree(found, expected):
    assert facts(found) == facts(expected)
    if isinstance(expected, (np.ndarray, np.generic)) and expected.dtype.kind in "fc":
        limit = TOLERANCE[str(expected.dtype)]
        np.testing.assert_allclose(found, expected, limit, limit)
    else:
        assert repr(found) == repr(expected)


def shared(leaf, given):
    """Which arguments the array shares memory with."""
    return [isinstance(leaf, np.ndarray) and np.shares_memory(leaf, other) for other in given.values()]


def base(leaf, given):
    """What it says that its memory belongs to: one of the arguments or what that is a view of, by name, or the facts of another array."""
    found = leaf.base if isinstance(leaf, np.ndarray) else None
    names = [name for name, other in given.items() if found is not None and (found is other or found is other.base)]
    return names or (facts(found) if isinstance(found, np.ndarray) else found)


def check(function, plain, given, call):
    """Results agree, also after each array among them is written to; gives how often the graph broke."""
    how, expected = outcome(function, plain)
    found_how, found = outcome(call, given)
    assert how == found_how
    if how == "raises":
        assert issubclass(found, expected)
        return
    assert type(found[1]) is type(expected[1])
    for mine, theirs in zip(leaves(found), leaves(expected), strict=True):
        agree(mine, theirs)
        assert shared(mine, given) == shared(theirs, plain)
        assert base(mine, given) == base(theirs, plain)
    for mine, theirs in zip(leaves(found[1]), leaves(expected[1]), strict=True):
        if isinstance(theirs, np.ndarray) and theirs.flags.writeable:
            mine[...], theirs[...] = 1, 1
    for mine, theirs in zip(given.values(), plain.values(), strict=True):
        agree(mine, theirs)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", listed(EXPRESSIONS))
def test_functions(text):
    for kind, order in KINDS:
        function, reports = program(text, order), []

        def call(function=function, reports=reports, **given):
            reports.append(explain(function)(**given))
            return reports[0].result

        check(function, arrays(kind, order), arrays(kind, order), call)
        for report in reports:
            if (kind, order) == KINDS[0]:
                assert [stop.detail for stop in report.breaks] == []
            assert all(frame.stop or frame.why == "no tensor operations" for frame in report.skipped), report.skipped


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", listed(OF_DATA))
def test_sizes_out_of_data(text):
    for kind, order in KINDS:
        function = program(text, order)
        compiled = tracework.compile(function, backend="eager", fullgraph=(kind, order) == KINDS[0])
        check(function, arrays(kind, order), arrays(kind, order), compiled)


@pytest.mark.parametrize("text", listed(OF_OPEN_SIZES))
def test_open_sizes(text):
    function = eval(f"lambda A: {text}", {"np": np})
    graphs = []
    compiled = tracework.compile(function, backend=lambda graph, _: graphs.append(graph) or graph, fullgraph=True, dynamic=True)
    for rows in (3, 5, 6):
        given = array(np.random.default_rng(rows), "float64", "c", (rows, 4))
        with np.errstate(invalid="ignore"):
            for mine, theirs in zip(leaves(compiled(given)), leaves(function(given)), strict=True):
                agree(mine, theirs)
    assert len(graphs) <= 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", listed(LEFT))
def test_what_is_left_to_numpy(text):
    function = program(text)
    check(function, arrays("float64", "c"), arrays("float64", "c"), tracework.compile(function, backend="eager"))
    with pytest.raises(Unsupported):
        tracework.compile(function, backend="eager", fullgraph=True)(**arrays("float64", "c"))


ASKED = """
np.sum(A,1,D) | np.sum(A,dtype=D) | np.sum(A,1,D,where=A>2) | np.sum(A,1,dtype=D,initial=3) | np.sum(A[:0],0,D) | A.sum(dtype=D) |
np.prod(A,1,D) | A.prod(dtype=D) | np.cumsum(A,1,D) | A.cumprod(0,D) | np.add.reduce(A,1,D) | np.add.accumulate(A,0,D) |
np.trace(A,dtype=D) | np.zeros_like(A,dtype=D) | np.full_like(A,3,dtype=D) | np.array(A,dtype=D)
"""
"""With a dtype, which may be a narrow one, and float64, which is equal to None."""


@pytest.mark.parametrize("kind", ["bool", "int8", "int64", "float32"])
@pytest.mark.parametrize("text", listed(ASKED))
def test_a_dtype_that_is_asked_for(text, kind):
    given, left = np.random.default_rng(0).integers(0, 90, (3, 4)).astype(kind), []
    for asked in ("bool", "int8", "uint8", "int32", "int64", "float32", "float64"):
        function = eval(f"lambda A, D: {text}", {"np": np})
        try:
            found = tracework.compile(function, backend="eager", fullgraph=True)(given, np.dtype(asked))
        except Unsupported:
            left.append(asked)
            continue
        expected = function(given, np.dtype(asked))
        assert found.dtype == expected.dtype, asked
        np.testing.assert_allclose(found, expected, 1e-5, err_msg=asked)
    assert len(left) < 4 and "float64" not in left
