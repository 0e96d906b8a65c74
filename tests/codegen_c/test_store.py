"""The store of compiled libraries: nobody else may write it, and what was changed there is compiled again."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from codegen_c import compile as driver
from codegen_c.compile import object_code
from codegen_c.errors import CompileError
from codegen_c.library import library_file, link

SOURCE = "int answer(void) { return 42; }"
OTHER = "int answer(void) { return 13; }"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("CODEGEN_C_CACHE", str(tmp_path / "store"))
    return tmp_path / "store"


def answer(path: Path) -> int:
    """What the library says in a process of its own, which cannot have loaded it before."""
    code = f"import ctypes; print(ctypes.CDLL({str(path)!r}).answer())"
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)


DAMAGES: dict[str, Callable[[Path, bytes], object]] = {
    "another library": lambda path, other: path.write_bytes(other),
    "cut": lambda path, other: path.write_bytes(path.read_bytes()[:-200]),
    "empty": lambda path, other: path.write_bytes(b""),
    "a changed byte": lambda path, other: path.write_bytes(path.read_bytes().replace(b"answer", b"answes", 1)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_library_is_compiled_again(store: Path, damage: str) -> None:
    other = link({"x": object_code(OTHER)})
    path = driver.library_path(SOURCE)
    whole = path.read_bytes()
    DAMAGES[damage](path, other)
    assert driver.library_path(SOURCE) == path and path.read_bytes() == whole and answer(path) == 42


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_object_is_compiled_again(store: Path, damage: str) -> None:
    code = object_code(SOURCE)
    (path,) = store.glob("*.o")
    DAMAGES[damage](path, b"other")
    assert object_code(SOURCE) == code


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_library_of_a_network_is_the_one_that_was_given(store: Path, damage: str) -> None:
    code, other = link({"x": object_code(SOURCE)}), link({"x": object_code(OTHER)})
    path = library_file(code)
    DAMAGES[damage](path, other)
    assert library_file(code) == path and answer(path) == 42


def test_a_store_that_others_can_write_is_refused(store: Path) -> None:
    assert ctypes.CDLL(str(driver.library_path(SOURCE))).answer() == 42 and store.stat().st_mode & 0o777 == 0o700
    store.chmod(0o777)
    for ask in (driver.library_path, object_code, lambda text: library_file(text.encode())):
        with pytest.raises(CompileError, match=r"^compile: the directory of compiled libraries .*others may write it"):
            ask(SOURCE)
