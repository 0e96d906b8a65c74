"""Windows of images on the block emulator's copy engine (im2col): beside windows that are counted one by one."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace

import numpy as np
import pytest

from codegen_cuda.emulation.emulated_maps import map_of, tensor_map
from codegen_cuda.emulation.emulator_report import EmulatorError
from codegen_cuda.program.cuda_program import TensorMap
from tests.ansor_ext.tensor_core.test_emulated_copies import LOAD, kernel, launched, unswizzled

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
HEAD = "const __grid_constant__ TensorMap M, unsigned char *out"


@dataclass(frozen=True)
class Windows:
    """`pixels` of the windows of images NHWC, from number `first` on: their elements at a `place`, `channels` of them
    from `channel` on.  Filters of `kernel` elements go over them in `steps`, with zeros around of a width `padding`."""

    shape: tuple[int, int, int, int]
    pixels: int
    channels: int
    first: int
    place: tuple[int, int]
    kernel: tuple[int, int] = (3, 3)
    padding: int = 1
    steps: tuple[int, int] = (1, 1)
    channel: int = 0
    swizzle: int = 0
    dtype: str = "float16"

    def array(self) -> np.ndarray:
        size = int(np.prod(self.shape))
        return (np.arange(size) % 1021 + 1).astype(self.dtype).reshape(self.shape)

    @property
    def counts(self) -> tuple[int, int]:
        """Lines of windows in an image, and windows in a line."""
        height, width = [n + 2 * self.padding - k for n, k in zip(self.shape[1:3], self.kernel, strict=True)]
        return height // self.steps[0] + 1, width // self.steps[1] + 1

    @property
    def nbytes(self) -> int:
        return self.pixels * self.channels * np.dtype(self.dtype).itemsize

    def want(self, array: np.ndarray) -> np.ndarray:
        """Window by window, of images with zeros around them and more channels than there are."""
        p, (lines, columns) = self.padding, self.counts
        padded = np.pad(array, ((0, 0), (p, p), (p, p), (0, self.channels)))
        out = np.zeros((self.pixels, self.channels), self.dtype)
        windows = [(n, y, x) for n in range(self.shape[0]) for y in range(lines) for x in range(columns)]
        for k, (n, y, x) in enumerate(windows[self.first : self.first + self.pixels]):
            at = y * self.steps[0] + self.place[0], x * self.steps[1] + self.place[1]
            out[k] = padded[(n, *at)][self.channel : self.channel + self.channels]
        return out

    def map(self, argument: int = 0) -> TensorMap:
        p = self.padding
        last = [(n - 1) * s - p for n, s in zip(self.counts, self.steps, strict=True)]
        margins = p, p, *[n - 1 - x for n, x in zip(self.shape[1:3], last, strict=True)]
        steps = (1, *self.steps, 1)
        return TensorMap(
            argument, self.dtype, self.shape, (self.pixels, 1, 1, self.channels), steps, self.swizzle, margins
        )

    @property
    def start(self) -> tuple[int, int, int]:
        """The image, line and column at which the first window begins."""
        rest, x = divmod(self.first, self.counts[1])
        n, y = divmod(rest, self.counts[0])
        return n, y * self.steps[0] - self.padding, x * self.steps[1] - self.padding

    def text(self) -> str:
        n, y, x = self.start
        numbers = ", ".join([f'"r"({k})' for k in (self.channel, x, y, n)])
        name = "cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes"
        text = f'"{name} [%0], [%1, {{%2, %3, %4, %5}}], [%6], {{%7, %8}};" ::"r"(at(x)), "l"(&M), {numbers}, "r"(b)'
        return f'asm volatile({text}, "h"((short){self.place[1]}), "h"((short){self.place[0]}) : "memory");'

    @property
    def body(self) -> str:
        return LOAD.format(nbytes=self.nbytes, load=self.text())


WINDOWS = {
    "a line of an image": Windows((1, 8, 8, 16), 8, 16, 16, (1, 1)),
    "the corner of zeros": Windows((1, 8, 8, 16), 16, 16, 0, (0, 0)),
    "from one image to the next": Windows((3, 7, 7, 32), 64, 32, 40, (2, 0)),
    "beyond the last image": Windows((2, 7, 5, 32), 48, 32, 40, (1, 2)),
    "every second pixel": Windows((2, 13, 17, 32), 64, 32, 30, (2, 2), steps=(2, 2)),
    "every second pixel of even images": Windows((2, 14, 10, 32), 64, 32, 3, (2, 2), steps=(2, 2)),
    "filters of 1 x 1, every third line": Windows((2, 10, 9, 16), 32, 16, 5, (0, 0), (1, 1), 0, (3, 1)),
    "no zeros around": Windows((2, 9, 9, 16), 64, 16, 11, (2, 1), padding=0),
    "three zeros around filters of 7": Windows((1, 9, 12, 16), 96, 16, 7, (6, 6), (7, 7), 3),
    "more channels than there are": Windows((2, 6, 6, 40), 32, 32, 4, (0, 2), channel=32),
    "swizzled": Windows((2, 14, 14, 128), 128, 64, 150, (0, 1), channel=64, swizzle=128),
    "floats, swizzled": Windows((1, 14, 14, 64), 64, 32, 70, (2, 1), channel=32, swizzle=128, dtype="float32"),
}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.one_in(2)
def test_windows_are_loaded(name: str) -> None:
    windows = WINDOWS[name]
    array, out = windows.array(), np.zeros(windows.nbytes, np.uint8)
    launched(kernel(HEAD, windows.body), [array, out, map_of(windows.map(), 0)], [2, 1])
    got = unswizzled(out, windows.swizzle).view(windows.dtype).reshape(windows.pixels, windows.channels)
    np.testing.assert_array_equal(got, windows.want(array))


SOUND = WINDOWS["every second pixel"]


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda m: replace(m, margins=()), "copies windows by a map of boxes"),
        (lambda m: replace(m, margins=(129, 1, 1, 1)), "at most 128 before an edge"),
        (lambda m: replace(m, margins=(1, 1, 1, 18)), "there must be a window"),
        (lambda m: replace(m, margins=(0, 1, 1, 1)), "from 5 on along axis 1, where none begins"),
        (lambda m: replace(m, margins=(1, 1, 1, 17)), "along axis 2, where none begins"),
        (lambda m: replace(m, steps=(2, 2, 2, 1)), "one by one elsewhere"),
        (lambda m: replace(m, box=(64, 1, 2, 32)), "one by one elsewhere"),
    ],
)
def test_maps_of_windows_that_are_none(change: object, message: str) -> None:
    assert callable(change)
    array, out = SOUND.array(), np.zeros(SOUND.nbytes, np.uint8)
    with pytest.raises(EmulatorError, match=message):
        launched(kernel(HEAD, SOUND.body), [array, out, map_of(change(SOUND.map()), 0)], [2, 1])


def test_a_place_beyond_what_an_instruction_can_say() -> None:
    far = replace(SOUND, place=(0, 256))
    array, out = SOUND.array(), np.zeros(SOUND.nbytes, np.uint8)
    with pytest.raises(EmulatorError, match="copies the place 256 in windows"):
        launched(kernel(HEAD, far.body), [array, out, map_of(SOUND.map(), 0)], [2, 1])


def test_a_box_by_a_map_of_windows() -> None:
    array, out = SOUND.array(), np.zeros(SOUND.nbytes, np.uint8)
    body = SOUND.body.replace("im2col", "tile").replace(", {%7, %8}", "")
    with pytest.raises(EmulatorError, match="copies a box by a map of windows"):
        launched(kernel(HEAD, body), [array, out, map_of(SOUND.map(), 0)], [2, 1])


def test_windows_of_matrices_are_none() -> None:
    matrix, out = np.zeros((64, 64), "float16"), np.zeros(SOUND.nbytes, np.uint8)
    made = tensor_map(matrix, 0, (64, 64), 128, margins=(0, 0, 0, 0))
    with pytest.raises(EmulatorError, match="of windows its rank must be 4"):
        launched(kernel(HEAD, SOUND.body), [matrix, out, made], [2, 1])
