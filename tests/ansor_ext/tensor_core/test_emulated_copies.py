"""The copy engine on the block emulator: boxes of tensors of all ranks, swizzles and strides, beside NumPy."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from codegen_cuda.emulation.emulated_maps import tensor_map
from codegen_cuda.emulation.emulator import Launch, Memory, run_launches
from codegen_cuda.emulation.emulator_report import EmulatorError
from codegen_cuda.program.cuda_program import TFLOAT32
from tests.ansor_ext.tensor_core.mma_schedules import nearest_tf32

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")

HEAD = r"""
typedef unsigned int u32;
typedef unsigned long long u64;
struct alignas(64) TensorMap { u64 opaque[16]; };
#define DEVICE static __device__ __forceinline__
DEVICE u32 at(const void *p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE void await(u32 b, u32 parity) {
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again; }"
               ::"r"(b), "r"(parity) : "memory");
}
#define INIT if (t == 0) { asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(b)); \
    asm volatile("fence.mbarrier_init.release.cluster;"); } __syncthreads();
#define EXPECT(n) asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(n) : "memory")
"""


def kernel(parameters: str, body: str, shared: int = 65536) -> str:
    return f"""{HEAD}extern "C" __global__ void k({parameters}) {{
  __shared__ __align__(1024) unsigned char x[{shared}];
  __shared__ __align__(8) u64 barrier[1];
  const int t = threadIdx.x;
  const u32 b = at(barrier);
  {body}
}}
"""


def launched(source: str, values: Sequence[np.ndarray | np.generic], given: Sequence[int], check: bool = True) -> None:
    memories = [Memory(f"argument_{i}", value, True) for i, value in enumerate(values)]
    launch = Launch("k", (1, 1, 1), (64, 1, 1), tuple(given), 0)
    run_launches(source, [launch], memories, check, 60.0)


@dataclass(frozen=True)
class Box:
    """A box of `box` elements of an array of `shape`, `steps` apart, that begins `at` some element, maybe outside."""

    dtype: str
    shape: tuple[int, ...]
    box: tuple[int, ...]
    at: tuple[int, ...]
    swizzle: int = 0
    steps: tuple[int, ...] = ()

    def array(self) -> np.ndarray:
        size = int(np.prod(self.shape))
        return (np.arange(size) % 1021 + 1).astype(self.dtype).reshape(self.shape)

    @property
    def counts(self) -> tuple[int, ...]:
        steps = self.steps or (1,) * len(self.box)
        return tuple([-(-n // s) for n, s in zip(self.box, steps, strict=True)])

    def places(self) -> tuple[np.ndarray, ...]:
        """The index of each element of the box in the array, along each axis."""
        steps = self.steps or (1,) * len(self.box)
        grids = [a + s * np.arange(n) for a, s, n in zip(self.at, steps, self.counts, strict=True)]
        return tuple(np.meshgrid(*grids, indexing="ij"))

    def want(self, array: np.ndarray) -> np.ndarray:
        places = self.places()
        inside = np.logical_and.reduce([(p >= 0) & (p < n) for p, n in zip(places, self.shape, strict=True)])
        held = array[tuple([np.clip(p, 0, n - 1) for p, n in zip(places, self.shape, strict=True)])]
        return np.where(inside, held, np.zeros((), self.dtype))

    def stored(self, array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Random bytes as they lie in shared memory, and the array behind their store, without what lies outside."""
        new = np.random.default_rng(0).integers(1, 100, self.counts).astype(self.dtype)
        want, places = array.copy(), self.places()
        inside = np.logical_and.reduce([(p >= 0) & (p < n) for p, n in zip(places, self.shape, strict=True)])
        want[tuple([p[inside] for p in places])] = new[inside]
        return unswizzled(np.frombuffer(new.tobytes(), np.uint8), self.swizzle), want

    @property
    def map_dtype(self) -> str:
        """What a map calls the elements."""
        return self.dtype

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.counts)) * np.dtype(self.dtype).itemsize

    def text(self, what: str) -> str:
        numbers = ", ".join(f'"r"({x})' for x in self.at[::-1])
        n = len(self.at)
        coordinates = ", ".join(f"%{2 + i}" for i in range(n))
        match what:
            case "load":
                name = f"cp.async.bulk.tensor.{n}d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
                text = f'"{name} [%0], [%1, {{{coordinates}}}], [%{n + 2}];" ::"r"(at(x)), "l"(&M), {numbers}, "r"(b)'
            case _:
                name = f"cp.async.bulk.tensor.{n}d.global.shared::cta.bulk_group"
                text = f'"{name} [%0, {{{coordinates}}}], [%1];" ::"l"(&M), "r"(at(x)), {numbers}'
        return f'asm volatile({text} : "memory");'

    @property
    def begins_inside(self) -> bool:
        """No axis begins before the tensor: so must boxes that are stored."""
        return min(self.at) >= 0

    def map(self, array: np.ndarray, number: int = 0) -> np.void:
        return tensor_map(array, number, self.box, self.swizzle, self.steps, rounds=self.map_dtype == TFLOAT32)


def unswizzled(data: np.ndarray, swizzle: int) -> np.ndarray:
    """Bytes of shared memory in the order of the box: units of 16 bytes were exchanged by the number of their line of
    128 bytes (PTX ISA, swizzling modes)."""
    if not swizzle:
        return data
    place = np.arange(data.size)
    units = {32: 1, 64: 3, 128: 7}[swizzle]
    return np.asarray(data[place ^ ((place >> 7 & units) << 4)])


BOXES = {
    "a row": Box("float32", (64,), (32,), (16,)),
    "a row over the end": Box("float16", (64,), (32,), (48,)),
    "all axes are cut": Box("float32", (9, 20), (8, 12), (-3, 12)),
    "three axes": Box("float16", (4, 5, 64), (2, 4, 32), (1, 3, -8)),
    "four axes": Box("int8", (3, 4, 5, 32), (2, 2, 3, 16), (2, -1, 4, 16)),
    "five axes": Box("float32", (2, 3, 2, 4, 8), (1, 3, 2, 2, 4), (1, -1, 1, 3, 4)),
    "beside the tensor": Box("float32", (8, 16), (4, 8), (8, 0)),
    "every third row": Box("float32", (32, 16), (12, 16), (3, 0), 0, (3, 1)),
    "swizzled over 32 bytes": Box("float16", (40, 48), (32, 16), (4, 16), 32),
    "swizzled over 64 bytes": Box("float32", (40, 48), (32, 16), (10, 40), 64),
    "swizzled over 128 bytes": Box("float16", (80, 128), (64, 64), (-5, 64), 128),
}


ONE_NAN = np.uint32(0x7FFFE000)
"""What the copy engine makes of every NaN."""


@dataclass(frozen=True)
class Rounded(Box):
    """A box of floats of a kind, each of which arrives as the nearest TF32 number."""

    kind: str = ""

    def array(self) -> np.ndarray:
        return np.resize(FLOATS[self.kind], self.shape).view("float32")

    def want(self, array: np.ndarray) -> np.ndarray:
        held = super().want(array)
        return np.where(np.isnan(held), ONE_NAN, nearest_tf32(held).view("u4")).view("float32")

    @property
    def map_dtype(self) -> str:
        return TFLOAT32


def _floats() -> dict[str, np.ndarray]:
    """The bits of floats by kind: between normal numbers, below them, beyond them; no signalling NaN."""
    rng = np.random.default_rng(7)
    sign, drawn = rng.integers(0, 2, 600).astype("u4") << 31, rng.integers(0, 1 << 23, 600).astype("u4")
    normal = drawn + (rng.integers(1, 254, 600).astype("u4") << 23)
    ties = (normal & 0xFFFFE000) + 0x1000
    denormal = np.concatenate([drawn, (drawn & 0x7FE000) + 0x1000, drawn & 0x1FFF])
    denormal[:6] = 0, 1, 0x1000, 0x1001, 0x3000, 0x7FFFFF
    largest = 0x7F800000 - np.arange(1, 0x2400, 16, dtype="u4")
    return {
        "normal": normal | sign,
        "ties": ties | sign,
        "beside ties": np.concatenate([ties - 1, ties + 1]),
        "denormal": denormal | np.resize(sign, denormal.shape),
        "that overflow": np.concatenate([largest, largest | 1 << 31]),
        "infinite": np.array([0x7F800000, 0xFF800000], "u4"),
        "NaN": np.array([0x7FC00000, 0xFFC00000], "u4"),
        "NaN, all bits set": np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7FC01000, 0x7FC03000, 0x7FE00FFF], "u4"),
    }


FLOATS = _floats()
ROUNDED = {kind: Rounded("float32", (72, 64), (64, 32), (-5, 32), 128, kind=kind) for kind in FLOATS}

LOAD = """asm volatile("prefetch.tensormap [%0];" ::"l"(&M));
  INIT
  if (t == 0) {{ EXPECT({nbytes}); {load} }}
  await(b, 0);
  for (int i = t; i < {nbytes}; i += 64) out[i] = x[i];"""


@pytest.mark.parametrize("name", BOXES)
@pytest.mark.one_in(2)
def test_a_box_is_loaded(name: str) -> None:
    box = BOXES[name]
    array, out = box.array(), np.zeros(box.nbytes, np.uint8)
    body = LOAD.format(nbytes=box.nbytes, load=box.text("load"))
    source = kernel("const __grid_constant__ TensorMap M, unsigned char *out", body)
    launched(source, [array, out, box.map(array)], [2, 1])
    got = unswizzled(out, box.swizzle).view(box.dtype).reshape(box.counts)
    np.testing.assert_array_equal(got, box.want(array))


def assert_bits(box: Box, out: np.ndarray, array: np.ndarray) -> None:
    """What lies in shared memory is what a box of floats is rounded to: other floats but for infinities."""
    given, want = Box.want(box, array).view("u4"), box.want(array).view("u4")
    got = unswizzled(out, box.swizzle).view("u4").reshape(box.counts)
    wrong = got != want
    first = [[hex(x) for x in bits[wrong][:3]] for bits in (given, got, want)]
    assert not wrong.any(), f"{wrong.sum()} floats, the first of which were given, got, and should be {first}"
    assert (given != want).any() == (not np.isinf(array).all())


@pytest.mark.parametrize("kind", FLOATS)
def test_floats_are_rounded_on_their_way(kind: str) -> None:
    """To the nearest TF32 number, ties to an even one; infinities stay as they are, and NaN becomes one NaN."""
    box = ROUNDED[kind]
    array, out = box.array(), np.zeros(box.nbytes, np.uint8)
    body = LOAD.format(nbytes=box.nbytes, load=box.text("load"))
    source = kernel("const __grid_constant__ TensorMap M, unsigned char *out", body)
    launched(source, [array, out, box.map(array)], [2, 1])
    assert_bits(box, out, array)


STORE = """for (int i = t; i < {nbytes}; i += 64) x[i] = given[i];
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (t == 0) {{
    {store}
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }}"""


STORED = {
    **{name: box for name, box in BOXES.items() if box.begins_inside},
    "all axes are cut at their ends": Box("float32", (9, 20), (8, 12), (3, 12)),
    "three axes of a middle": Box("float16", (4, 5, 64), (2, 4, 32), (1, 3, 40)),
    "swizzled over 128 bytes behind the end": Box("float16", (80, 128), (64, 64), (33, 64), 128),
}


@pytest.mark.parametrize("name", STORED)
@pytest.mark.one_in(2)
def test_a_box_is_stored(name: str) -> None:
    """What lies outside of the tensor is left out; all else of the tensor stays as it is."""
    box = STORED[name]
    array = box.array()
    given, want = box.stored(array)
    source = kernel(
        "const __grid_constant__ TensorMap M, const unsigned char *given",
        STORE.format(nbytes=box.nbytes, store=box.text("store")),
    )
    launched(source, [array, given, box.map(array)], [2, 1])
    np.testing.assert_array_equal(array, want)


@pytest.mark.parametrize("name", [name for name, box in BOXES.items() if not box.begins_inside])
@pytest.mark.one_in(3)
def test_a_box_that_is_stored_must_begin_inside(name: str) -> None:
    """Elsewhere a device has an illegal instruction (tests/gpu/test_gpu_copy_engine.py)."""
    box = BOXES[name]
    array = box.array()
    body = STORE.format(nbytes=box.nbytes, store=box.text("store"))
    source = kernel("const __grid_constant__ TensorMap M, const unsigned char *given", body)
    with pytest.raises(EmulatorError, match="stores a box that begins before its tensor, at -"):
        launched(source, [array, np.zeros(box.nbytes, np.uint8), box.map(array)], [2, 1])


ROWS = """INIT
  if (t == 0) {
    EXPECT(512);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;"
                 ::"r"(at(x)), "l"((u64)given), "r"(512), "r"(b), "l"(0ull) : "memory");
    await(b, 0);
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 ::"l"((u64)(out + 16)), "r"(at(x) + 128), "r"(256));
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }"""


@pytest.mark.parametrize("check", [True, False])
def test_rows_go_there_and_back(check: bool) -> None:
    given, out = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    launched(kernel("const float *given, float *out", ROWS), [given, out], [0, 1], check)
    np.testing.assert_array_equal(out, [0] * 16 + list(range(32, 96)) + [0] * 48)


@pytest.mark.parametrize(
    "old, new, message",
    [
        ('"r"(512), "r"(b)', '"r"(504), "r"(b)', "multiples of 16"),
        ("at(x)), ", "at(x) + 8), ", "misaligned"),
        ('"l"((u64)given)', '"l"((u64)(given + 64))', "out of bounds"),
        ("    await(b, 0);\n", "", "whose asynchronous copy was not waited for"),
        ("EXPECT(512);", "EXPECT(496);", "expects 496 bytes, and 512 are on their way"),
        ("EXPECT(512);", "x[64] = 1; EXPECT(512);", "overwrite byte 64 of x, .* without fence"),
        ("    await(b, 0);\n", "    await(b, 0); x[200] = 1;\n", "without fence.proxy.async"),
    ],
)
@pytest.mark.one_in(3)
def test_faults_of_rows(old: str, new: str, message: str) -> None:
    assert old in ROWS
    given, out = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    with pytest.raises(EmulatorError, match=message):
        launched(kernel("const float *given, float *out", ROWS.replace(old, new)), [given, out], [0, 1])


def test_a_copy_that_nobody_waits_for_is_reported() -> None:
    given, out = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    alone = ROWS[: ROWS.index("    await")] + "  }"
    with pytest.raises(EmulatorError, match="ends while 512 bytes are on their way"):
        launched(kernel("const float *given, float *out", alone), [given, out], [0, 1])


SOUND = Box("float16", (80, 128), (64, 64), (0, 0), 128)


@pytest.mark.parametrize(
    "map_of, message",
    [
        (lambda a: tensor_map(a, 0, (64, 60)), "multiples of 16 bytes"),
        (lambda a: tensor_map(a, 0, (64, 128), 128), "longer than its swizzle"),
        (lambda a: tensor_map(a, 0, (257, 64), 128), "1 to 256 elements"),
        (lambda a: tensor_map(a, 0, (64, 64), 128, (9, 1)), "must be 1 to 8"),
        (lambda a: tensor_map(a[:, 1:], 0, (64, 64), 128, offset=2), "address must be a multiple of 16"),
        (lambda a: tensor_map(a.reshape(-1, 4), 0, (64, 64), 128), "strides must be multiples of 16"),
        (lambda a: tensor_map(a, 0, (64, 64), 128, offset=16), "beyond its array"),
        (lambda a: tensor_map(a, 7, (64, 64), 128), "none of the arguments"),
        (lambda a: tensor_map(a[0], 0, (64,), 128), "rank 2 by a map of rank 1"),
        (lambda a: np.void(b"x" * 128), "not made for the emulator"),
    ],
)
@pytest.mark.one_in(3)
def test_maps_that_are_none(map_of: object, message: str) -> None:
    assert callable(map_of)
    array, out = SOUND.array(), np.zeros(SOUND.nbytes, np.uint8)
    body = LOAD.format(nbytes=SOUND.nbytes, load=SOUND.text("load"))
    source = kernel("const __grid_constant__ TensorMap M, unsigned char *out", body)
    with pytest.raises(EmulatorError, match=message):
        launched(source, [array, out, map_of(array)], [2, 1])
