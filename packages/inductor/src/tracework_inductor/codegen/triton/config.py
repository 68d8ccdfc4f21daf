"""Block sizes, warps and stages: one table per kernel shape, tuned for Hopper (132 multiprocessors, 16-byte loads).

The aim everywhere is eight elements a thread (one or two 16-byte vectors) and at least two blocks a multiprocessor.
The first config is the default; `neighbours` of it are timed where somebody asks for that.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from ...ir.cores import LEAST_DOT, power_of_two

__all__ = [
    "COLUMN_BLOCKS",
    "MAX_PERSISTENT",
    "Config",
    "Epilogue",
    "Shape",
    "SplitLimits",
    "TileConfig",
    "configs",
    "is_sensible",
    "neighbours",
    "product_kind",
    "split_limits",
    "splits",
    "tensor_core_product",
    "tile_configs",
]

MULTIPROCESSORS = 132
# That walk rows and keep sums of columns: as many as run at once, two on a multiprocessor, which has registers for 16 elements in 512 threads.
COLUMN_BLOCKS = 2 * MULTIPROCESSORS
_LONG_COLUMN_ROW = 2048
# Rows up to this many elements are held in registers at once.
MAX_PERSISTENT = 16384
_MOST_IN_FLIGHT = 4
# Rows of a product's large matrix up to this many elements are read in one piece.
LONGEST_PRODUCT_ROW = 16384
# Blocks of columns below which a product is split into parts, and the steps of a part: the second stage takes the time of some.
_PARTS_FROM = 48
_STEPS_OF_PART = 3
# Columns from which blocks of 16 of them nearly fill the device.
_NARROW_BLOCKS_FROM = 1536
# Bytes that are loaded for an element of a step up to which steps are long.
_MOST_IN_STEP = 8
# Blocks a multiprocessor that walk across rows, of 8 warps with a few loads each: so many keep its memory busy.
_FULL_ACROSS = 4
_LONG_PART = 8
# Rows from this many elements on are walked in steps of 4096: measured on softmax and cross entropy of 50257 columns.
_LONG_ROW = 32768


@dataclasses.dataclass(frozen=True)
class Shape:
    """What the choice depends on: kind (a key of TABLES), numbers of points (hints), the contiguous dimension, how many loads there are,
    how many values of a row live at once, how many loads are inside rows; of products how many there are, how many rows they have, the
    bytes of an element of the large matrix, whether blocks compute again what all columns need; whether rows are scanned. Of rows and
    columns itemsize is what is loaded for each element, and of_all_rows what is loaded for one of each row together."""

    kind: str
    outer: int
    inner: int
    contiguous: str
    loads: int = 1
    second: int = 1
    held: int = 1
    streams: int = 1
    products: int = 0
    rows: int = 1
    itemsize: int = 0
    of_all_rows: int = 0
    repeats: bool = False
    scans: bool = False

    @property
    def looped(self) -> bool:
        """Whether rows are walked in a loop."""
        return self.kind in ("looped", "product", "product columns")


@dataclasses.dataclass(frozen=True)
class Config:
    """Values of the constexpr arguments, and how the kernel is compiled."""

    constants: dict[str, int]
    num_warps: int = 4
    num_stages: int = 1

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {"constants": self.constants, "num_warps": self.num_warps, "num_stages": self.num_stages}

    @property
    def elements(self) -> int:
        """Of a block."""
        return math.prod(size for name, size in self.constants.items() if name.endswith("BLOCK"))


def _between(low: int, n: int, high: int) -> int:
    return max(low, min(n, high))


def _warps(elements: int, a_thread: int = 8) -> int:
    return _between(1, power_of_two(elements // (32 * a_thread)), 16)


def _pointwise(shape: Shape) -> list[Config]:
    largest = 1024 if shape.loads <= 8 else 512
    block = _between(128, power_of_two(shape.outer // (MULTIPROCESSORS * _MOST_IN_FLIGHT)), largest)
    return [Config({"XBLOCK": block}, _between(1, _warps(block), 4) if block > 128 else 4)]


def _tiled(shape: Shape) -> list[Config]:
    """Rows and columns of a tile are pieces of at least 128 bytes, of 256 in float32: where images have odd sizes, pieces begin within sectors,
    of which each end takes one more. Of few tiles more run at once."""
    x = _between(16, power_of_two(shape.outer), 64)
    most = 4096 if shape.loads <= 4 and shape.outer * shape.second >= 4096 * 4 * MULTIPROCESSORS else 2048
    y = _between(16, power_of_two(shape.second), most // x)
    return [Config({"YBLOCK": y, "XBLOCK": x}, _between(4, _warps(x * y), 8))]


def _jumps(shape: Shape) -> list[Config]:
    """Rows of a tile fill warps, or half ones where less of them is padding; what depends on a row or on a column alone is computed for
    several elements of a thread."""
    x = min((64, 32, 16), key=lambda block: -(-shape.outer // block) * block)
    y = _between(4, power_of_two(shape.second), (1024 if shape.loads <= 8 else 512) // x)
    return [Config({"YBLOCK": y, "XBLOCK": x}, 4)]


def _persistent(shape: Shape) -> list[Config]:
    row = power_of_two(shape.inner)
    if shape.contiguous == "x":
        return [_persistent_across(shape, row)]
    # Several values of the row live at once: fewer elements a thread.
    a_thread = 8 if shape.held <= 4 else 4
    rows = min(_between(1, 2048 // row, 64), power_of_two(shape.outer))
    while rows > 1 and shape.outer // rows < MULTIPROCESSORS * 2:
        rows //= 2
    warps = _between(1, _warps(rows * row, a_thread), 16 if row >= 8192 else 8)
    return [Config({"XBLOCK": rows, "RBLOCK": row}, warps)]


def _persistent_across(shape: Shape, row: int) -> Config:
    """Rows that lie beside each other are held by one warp as long as its threads have registers for them: each has several elements of some
    rows, and no barrier stands between the loads of a block and what is reduced."""
    a_thread = 32 if shape.held <= 6 else 16
    rows = _between(16, 32 * a_thread // row, 128)
    while rows > 16 and shape.outer // rows < MULTIPROCESSORS * 8:
        rows //= 2
    return Config({"XBLOCK": rows, "RBLOCK": row}, _between(1, _warps(rows * row, a_thread), 8))


def _rows_and_columns(shape: Shape) -> list[Config]:
    """Each thread has as many accumulators of a sum of columns as elements of a row. A step takes several rows, as its sums are waited for, and
    the rows of the next steps are under way to shared memory, as many as it holds beside those of the other block."""
    row, (shared, _) = power_of_two(shape.inner), LIMITS[80]
    together = 1 if row > _LONG_COLUMN_ROW else 2
    elements = 8192 // together if shape.itemsize <= _MOST_IN_STEP else 4096 // together
    rows = max(1, elements // row)
    ahead = shared // together // (row * max(1, rows * shape.itemsize + shape.of_all_rows))
    return [Config({"XBLOCK": rows, "RBLOCK": row}, 16 // together, _between(1, 1 + ahead, 3))]


def _sorted(shape: Shape) -> list[Config]:
    """Eight elements a thread, of rows that lie in one block; beside each other 32 bytes and more are read at once."""
    row, beside = power_of_two(shape.inner), 8 if shape.contiguous == "x" else 1
    rows = min(max(1024 // row, beside), power_of_two(shape.outer))
    while rows > beside and shape.outer // rows < MULTIPROCESSORS * 2:
        rows //= 2
    return [Config({"XBLOCK": rows, "RBLOCK": row}, _between(1, _warps(rows * row), 16))]


def _looped(shape: Shape) -> list[Config]:
    if shape.contiguous == "x":  # measured on columns of 24 to 3072 channels of images, one load a point and three
        x = _between(16, power_of_two(shape.outer), 32 if shape.streams <= 2 else 64)
        r = _between(8, power_of_two(shape.inner), 2048 // x)
        return [Config({"XBLOCK": x, "RBLOCK": r}, 8)]
    if shape.inner >= _LONG_ROW and not shape.scans:
        return [Config({"XBLOCK": 1, "RBLOCK": 4096}, 16, 2)]
    r = _between(64, power_of_two(shape.inner), 2048 if shape.loads <= 4 else 1024)
    x = _between(1, 2048 // r, power_of_two(shape.outer))
    return [Config({"XBLOCK": x, "RBLOCK": r}, _between(4, _warps(r * x), 8), 2)]


def _product_row(shape: Shape) -> list[Config]:
    """Rows of the large matrix in one piece: all that a thread loads is under way at once."""
    row = power_of_two(shape.inner)
    if shape.repeats:  # 64 elements a thread, so that few blocks do the work that each of them does again
        warps = _between(4, row // 512, 8)
        return [Config({"XBLOCK": _between(1, 64 * 32 * warps // (row * shape.products), 4), "RBLOCK": row}, warps)]
    columns, a_warp = (max(1, 4096 // row), 2048) if shape.itemsize == 1 else (max(1, 2048 // row), 1024)
    return [Config({"XBLOCK": columns, "RBLOCK": row}, _between(4, columns * row // a_warp, 16 if shape.itemsize == 4 else 8))]


def _product(shape: Shape) -> list[Config]:
    """Rows of the large matrix in a loop."""
    if shape.rows > 4 and shape.itemsize == 4:
        return [Config({"XBLOCK": 4, "RBLOCK": _between(64, power_of_two(shape.inner), 512)}, 4, 3)]
    columns = 2 if (shape.rows > 1 or shape.repeats) and shape.products == 1 else 1
    step = 2048 if shape.rows == 1 and shape.outer < 8 * MULTIPROCESSORS else 1024
    return [Config({"XBLOCK": columns, "RBLOCK": _between(64, power_of_two(shape.inner), step)}, 4)]


def _product_columns(shape: Shape) -> list[Config]:
    """Columns of a large matrix whose rows are the inner dimension: few of each, so that all blocks have some."""
    columns, warps = (16, 8) if shape.outer >= 32 * _PARTS_FROM else (32 if shape.itemsize < 4 else 16, 16)
    return [Config({"XBLOCK": columns, "RBLOCK": _between(16, power_of_two(shape.inner), 256)}, warps)]


def tensor_core_product(columns: int, inner: int, products: int, itemsize: int, rows: int) -> tuple[Config, int]:
    """For products of several rows, and into how many parts their inner dimension is split; itemsize: of the large matrix."""
    if rows > LEAST_DOT:  # of a matrix of few bytes: each block reads all rows, and so has more columns
        step = _between(16, power_of_two(inner), 128)
        return Config({"XBLOCK": 64, "YBLOCK": power_of_two(rows), "RBLOCK": step}, 4, 3), _parts(2, columns, 64, inner, step)
    if itemsize == 1:
        step = _between(16, power_of_two(inner), 256)
        return Config({"XBLOCK": 32, "YBLOCK": 16, "RBLOCK": step}, 2, 3), _parts(4, columns, 32, inner, step)
    if -(-columns // 64) * products < MULTIPROCESSORS and columns >= _NARROW_BLOCKS_FROM and inner <= 4096:
        return Config({"XBLOCK": 16, "YBLOCK": 16, "RBLOCK": _between(16, power_of_two(inner), 256)}, 2, 4), 1
    step = _between(16, power_of_two(inner), 128)
    return Config({"XBLOCK": 64, "YBLOCK": 16, "RBLOCK": step}, 4, 4), _parts(1, columns, 64, inner, step)


def _parts(blocks: int, columns: int, width: int, inner: int, step: int) -> int:
    """Into how many parts an inner dimension is split, so that a multiprocessor has so many blocks of that width: a power of two."""
    across = -(-columns // width)
    most = min(blocks * MULTIPROCESSORS // across if across <= MULTIPROCESSORS else 1, inner // (_STEPS_OF_PART * step))
    return 1 << (most.bit_length() - 1) if most else 1


@dataclasses.dataclass(frozen=True)
class TileConfig:
    """How a large product is computed: a block's rows and columns of the result, the inner elements of a step, into how many parts the inner
    dimension is split, how many rows of tiles are a band, whether blocks take several tiles, and how many of such blocks a multiprocessor
    runs at the same time.

    descriptors: matrices in memory are copied by descriptors of tensors; blocks of this kind take several tiles. slices: into how many the
    columns are cut for what follows the product, one of which is computed after the other, so that a thread holds fewer values."""

    rows: int
    columns: int
    inner: int
    num_warps: int
    num_stages: int
    parts: int = 1
    band: int = 8
    persistent: bool = False
    at_once: int = 1
    descriptors: bool = False
    slices: int = 1

    @property
    def held(self) -> int:
        """Numbers of a tile that a thread has."""
        return self.rows * self.columns // (32 * self.num_warps)

    @property
    def second_rows(self) -> int:
        """Rows of a block that adds up parts."""
        return min(self.rows, max(1, 4096 // self.columns))

    @property
    def constants(self) -> dict[str, int]:
        """The constexpr arguments, which say all but how it is compiled."""
        found = {"YBLOCK": self.rows, "XBLOCK": self.columns, "RBLOCK": self.inner, "BAND": self.band}
        if self.parts > 1:
            found |= {"SBLOCK": self.second_rows, "PARTS": self.parts}
        found |= {"CBLOCK": self.columns // self.slices} if self.slices > 1 else {}
        found |= {"DESCRIPTORS": 1} if self.descriptors else {}
        return found | ({"BLOCKS": self.at_once * MULTIPROCESSORS} if self.persistent else {})

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return Config(self.constants, self.num_warps, self.num_stages).record()

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "TileConfig":
        """The config of a record."""
        c, blocks = record["constants"], record["constants"].get("BLOCKS", 0)
        return cls(
            rows=c["YBLOCK"],
            columns=c["XBLOCK"],
            inner=c["RBLOCK"],
            num_warps=record["num_warps"],
            num_stages=record["num_stages"],
            parts=c.get("PARTS", 1),
            band=c["BAND"],
            persistent=bool(blocks),
            at_once=max(1, blocks // MULTIPROCESSORS),
            descriptors="DESCRIPTORS" in c,
            slices=c["XBLOCK"] // c.get("CBLOCK", c["XBLOCK"]),
        )


LIMITS = {80: (163 << 10, 64), 90: (227 << 10, 128)}
"""Compute capability from which on -> bytes of shared memory that a block may take, and float32 numbers of a tile in a thread, of which what
follows the product computes several."""
_HALF_TILES = (
    (TileConfig(128, 256, 64, 8, 3), 1.0),
    (TileConfig(256, 128, 64, 8, 3), 1.0),
    (TileConfig(128, 256, 64, 8, 4), 1.0),
    (TileConfig(128, 128, 64, 8, 3), 0.9),
    (TileConfig(128, 128, 64, 4, 4), 0.9),
    (TileConfig(64, 256, 64, 8, 3), 0.85),
    (TileConfig(128, 128, 32, 8, 4), 0.75),
    (TileConfig(128, 128, 64, 8, 4), 0.75),
    (TileConfig(256, 64, 64, 8, 3), 0.75),
    (TileConfig(128, 64, 64, 4, 4), 0.75),
    (TileConfig(64, 128, 64, 4, 4), 0.75),
    (TileConfig(128, 64, 64, 8, 4), 0.7),
    (TileConfig(64, 64, 64, 4, 4), 0.6),
    (TileConfig(256, 32, 64, 8, 4), 0.5),
    (TileConfig(128, 32, 64, 4, 4), 0.5),
    (TileConfig(64, 32, 64, 4, 4), 0.4),
    (TileConfig(256, 16, 64, 8, 4), 0.3),
    (TileConfig(128, 16, 64, 4, 4), 0.3),
    (TileConfig(32, 64, 64, 4, 4), 0.3),
    (TileConfig(16, 128, 64, 4, 4), 0.3),
    (TileConfig(16, 64, 128, 4, 3), 0.2),
    (TileConfig(32, 32, 64, 2, 4), 0.2),
    (TileConfig(16, 32, 128, 2, 4), 0.1),
)
_DESCRIBED_TILES = (
    (TileConfig(128, 256, 64, 8, 3, persistent=True, descriptors=True, slices=2), 1.15),
    (TileConfig(256, 128, 64, 8, 3, persistent=True, descriptors=True, slices=2), 1.08),
    (TileConfig(128, 128, 64, 8, 4, persistent=True, descriptors=True), 1.1),
    (TileConfig(128, 128, 64, 4, 3, persistent=True, descriptors=True, slices=2), 1.05),
    (TileConfig(128, 256, 64, 8, 4, persistent=True, descriptors=True, slices=4), 0.95),
    (TileConfig(128, 128, 64, 4, 2, persistent=True, descriptors=True, slices=2), 0.95),
    (TileConfig(128, 64, 64, 4, 4, persistent=True, descriptors=True), 0.85),
    (TileConfig(64, 128, 64, 4, 4, persistent=True, descriptors=True), 0.85),
    (TileConfig(64, 64, 64, 4, 4, persistent=True, descriptors=True), 0.65),
)
"""In the order of bf16 products on an H200; where blocks take one tile each, those without descriptors are faster."""
_FLOAT_TILES = (
    (TileConfig(128, 128, 16, 8, 3), 0.8),
    (TileConfig(128, 64, 16, 8, 3), 0.7),
    (TileConfig(64, 64, 16, 4, 3), 0.6),
    (TileConfig(64, 32, 32, 4, 3), 0.5),
    (TileConfig(32, 64, 32, 4, 3), 0.5),
    (TileConfig(32, 32, 32, 4, 3), 0.4),
    (TileConfig(16, 64, 32, 4, 3), 0.3),
    (TileConfig(16, 32, 32, 2, 3), 0.2),
)
_TILES = {2: (_HALF_TILES, 660e12), 4: (_FLOAT_TILES, 48e12)}
"""Bytes of a factor -> (tiles, each with the share that it is guessed to reach of what large products do; that rate a second on an H100)."""
_OF_BLOCK = 1 << 10
"""Bytes of shared memory that the device keeps of each block; barriers of copies take a few hundred more."""
_STORED_AT_ONCE = 32 << 10
_BANDWIDTH, _CACHE_BANDWIDTH, _SECOND_LAUNCH = 3.35e12, 8e12, 4e-6
_MOST_TOGETHER = 2
_MOST_BESIDE_FUNCTIONS = 64
_ALONE_BESIDE_FUNCTIONS = 0.9
"""Of the share, where tensor cores wait for functions since no other block multiplies meanwhile."""
_MOST_PARTS = 16
_STEPS_OF_TILE_PART = 4


@dataclasses.dataclass(frozen=True)
class Epilogue:
    """What follows a product: whether it computes functions that take many registers (beside 128 elements in a thread they spill on sm_90),
    and how many bytes it reads of other matrices of the result's size, and stores, for each element."""

    costly: bool = False
    read: int = 0
    stored: int = 2


NO_EPILOGUE = Epilogue()


def _fitted(tile: TileConfig, persistent: bool, stage: int, after: Epilogue, shared: int) -> TileConfig | None:
    """The tile with as many stages, of so many bytes each, as shared memory holds, and as many blocks at once; None where it holds none.

    Where blocks take several tiles, what is stored has memory of its own on its way: a part of the tile at a time, or with descriptors all of
    it, and all that is read.
    """
    if tile.descriptors:
        own = tile.rows * tile.columns // tile.slices * (after.stored + after.read) + _OF_BLOCK
    else:
        own = min(2 * tile.rows * tile.columns, _STORED_AT_ONCE) if persistent else 0
    stages = min(tile.num_stages, (shared - own) // stage)
    if stages < 1:
        return None
    together = _between(1, (shared + _OF_BLOCK) // (stage * stages + own + _OF_BLOCK), _MOST_TOGETHER)
    return dataclasses.replace(tile, num_stages=stages, persistent=persistent, at_once=together)


def tile_configs(
    batches: int,
    rows: int,
    columns: int,
    inner: int,
    loaded: tuple[int, int],
    itemsize: int,
    capability: int = 80,
    after: Epilogue = NO_EPILOGUE,
    described: bool = False,
    moved: int = 0,
) -> list[TileConfig]:
    """Configs of a large product that each device of the capability, or a later one, can run, the best guess first.

    loaded: bytes that an element of either matrix takes in memory; itemsize: as it is multiplied. described: whether descriptors tell where
    both matrices are. moved: bytes that the whole kernel reads and writes. Where they take longer than the products, threads with few
    elements come first, of which many are loading at the same time.
    """
    (tiles, rate), (shared, most) = _TILES[itemsize], LIMITS[capability]
    found: list[tuple[float, TileConfig]] = []
    for tile, share in (*(_DESCRIBED_TILES if described else ()), *tiles):
        first, second = (max(n, itemsize) for n in loaded)
        step = min(tile.inner, max(16, power_of_two(inner)))
        step = step if tile.descriptors else _step(step, inner)
        stage = step * (tile.rows * first + tile.columns * second)
        if tile.held > (min(most, _MOST_BESIDE_FUNCTIONS) if after.costly and tile.slices == 1 else most):
            continue
        if tile.rows > max(16, power_of_two(rows)) or tile.columns > max(32, power_of_two(columns)):
            continue
        tile = dataclasses.replace(tile, inner=step)
        blocks = batches * -(-rows // tile.rows) * -(-columns // tile.columns)
        again = blocks * inner * (tile.rows * first + tile.columns * second) / _CACHE_BANDWIDTH
        crowd = next(share for most, share in _CROWDS if tile.held <= most) * (_DESCRIBED_CROWD if tile.descriptors else 1.0)
        crowd *= batches * rows * columns / (blocks * tile.rows * tile.columns)  # places outside wait as the others do

        def add(time: float, more: float, blocks: int, config: TileConfig, crowd: float = crowd, again: float = again) -> None:
            moving = moved / (_BANDWIDTH * min(1.0, blocks / MULTIPROCESSORS))
            crowd *= _IN_TURN_CROWD if config.persistent else 1.0
            found.append((max(time, moving / crowd) + again * moving / (moving + time) + more, config))

        for persistent in (True,) if tile.descriptors else (True, False):
            # Blocks that take several tiles copy for the next one.
            most_stages = tile.num_stages if persistent else min(tile.num_stages, -(-inner // step))
            fitted = _fitted(dataclasses.replace(tile, num_stages=most_stages), persistent, stage, after, shared)
            if fitted is None:
                continue
            at_once = MULTIPROCESSORS * fitted.at_once
            reached = share * (_ALONE_BESIDE_FUNCTIONS if after.costly and fitted.at_once == 1 else 1)
            of_tile = 2 * tile.rows * tile.columns * inner * fitted.at_once / (reached * rate / MULTIPROCESSORS)
            if persistent:
                if blocks > (1 if tile.descriptors else 2) * at_once:
                    add(-(-blocks // at_once) * of_tile, 0.0, blocks, fitted)
                continue
            parts = 1
            while parts <= _MOST_PARTS and (parts == 1 or inner >= _STEPS_OF_TILE_PART * step * parts):
                time = -(-blocks * parts // at_once) * of_tile / parts
                more = _SECOND_LAUNCH + 8 * parts * batches * rows * columns / _BANDWIDTH if parts > 1 else 0.0
                whole = dataclasses.replace(fitted, parts=parts, at_once=1)
                add(time, more, blocks * parts, whole)
                if blocks * parts >= at_once:
                    break
                parts *= 2
    return list(dict.fromkeys(config for _, config in sorted(found, key=lambda one: one[0])))


def _step(step: int, inner: int) -> int:
    """Inner elements of a step, fewer where much of the last one would lie behind the end."""

    def walked(step: int) -> int:
        return -(-inner // step) * step

    while step > _SHORTEST_STEP and walked(step) > _MOST_WALKED * walked(_SHORTEST_STEP):
        step //= 2
    return step


_CROWDS, _DESCRIBED_CROWD, _IN_TURN_CROWD = ((32, 0.74), (64, 0.7), (128, 0.6)), 0.85, 0.95
"""Elements of a tile in a thread up to which -> the share of the bandwidth that so many such threads as a multiprocessor holds were seen to
reach (1x1 convolutions of ResNet-50, MobileNetV3 and EfficientNet on an H200); over it, that of blocks that copy by descriptors, and of
those that take several tiles."""
_SHORTEST_STEP = 32
_MOST_WALKED = 1.1
"""Over what the shortest steps walk over."""


TABLES = {
    "pointwise": _pointwise,
    "tiled": _tiled,
    "jumps": _jumps,
    "persistent": _persistent,
    "rows and columns": _rows_and_columns,
    "sorted": _sorted,
    "looped": _looped,
    "product row": _product_row,
    "product": _product,
    "product columns": _product_columns,
}


def product_kind(inner: int, rows: int) -> str:
    """How a product reads the rows of its large matrix where these lie in one piece."""
    row = power_of_two(inner)
    return "product row" if rows == 1 and row <= LONGEST_PRODUCT_ROW and 2 * row <= 3 * inner else "product"


def configs(shape: Shape) -> list[Config]:
    """Configs for a shape, the best guess first."""
    return TABLES[shape.kind](shape)


_MOST_ELEMENTS_OF_A_THREAD = 64
_MOST_WARPS = 16


def neighbours(config: Config) -> Iterator[Config]:
    """Configs with half and twice the block in each outer dimension, and with half and twice the warps; rows are walked as they are."""
    for name, size in config.constants.items():
        if name != "RBLOCK":
            yield from (dataclasses.replace(config, constants={**config.constants, name: n}) for n in (2 * size, size // 2) if n)
    yield from (dataclasses.replace(config, num_warps=n) for n in (2 * config.num_warps, config.num_warps // 2) if n)


def is_sensible(shape: Shape, config: Config) -> bool:
    """Whether no thread has too much to hold or nothing to do, and no block lies outside of what there is."""
    threads = 32 * config.num_warps
    outer = {"XBLOCK": shape.outer, "YBLOCK": shape.second}
    held = config.elements * max(1, shape.held if shape.kind == "persistent" else shape.loads) // threads
    if config.num_warps > _MOST_WARPS or held > _MOST_ELEMENTS_OF_A_THREAD or config.elements < threads:
        return False
    return all(config.constants.get(name, 1) <= power_of_two(size) for name, size in outer.items())


@dataclasses.dataclass(frozen=True)
class SplitLimits:
    """Looped rows are split into so many parts that `blocks` blocks run, each of at least `steps` steps, and into `most` parts at most."""

    blocks: int
    steps: int
    most: int


def split_limits(shape: Shape) -> SplitLimits:
    """The limits for looped rows that are no products'; `most` is a power of two, and so many steps stay below what indices of 32 bits leave."""
    if shape.contiguous == "x":
        return SplitLimits((8 if shape.streams <= 2 else 4) * MULTIPROCESSORS, 2, 256)
    return SplitLimits(8 * MULTIPROCESSORS, 1, 512) if shape.scans else SplitLimits(6 * MULTIPROCESSORS, 1, 256)


def splits(shape: Shape, config: Config) -> int:
    """Into how many parts a looped reduction or scan of known sizes is split so that the device is filled; 1 for not at all."""
    blocks = max(-(-shape.outer // config.constants["XBLOCK"]), 1)
    across = shape.kind == "looped" and shape.contiguous == "x"
    if blocks >= (_FULL_ACROSS * MULTIPROCESSORS if across else MULTIPROCESSORS):
        return 1
    longest = shape.inner // config.constants["RBLOCK"]
    if shape.kind == "product columns":
        most = longest // _STEPS_OF_PART if blocks < _PARTS_FROM else 1
        return 1 << (min(most, -(-2 * _PARTS_FROM // blocks)).bit_length() - 1) if most else 1
    limits = split_limits(shape)
    enough = limits.blocks // blocks
    if shape.contiguous == "x":
        # What runs beside each other already is worth a second launch only where parts are long.
        steps = limits.steps if blocks < MULTIPROCESSORS else _LONG_PART
        most = min(enough, longest // steps, limits.most)
        return 1 << (most.bit_length() - 1) if most else 1
    return _between(1, power_of_two(min(enough, longest)), limits.most) if longest >= 4 else 1
