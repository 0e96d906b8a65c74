"""Folders that others can write are refused as ssh refuses them; a file that is not what was written is not taken."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from ansor.core.errors import BackendError
from ansor.core.files.private_files import private_folder, read_sealed, write_sealed, write_whole

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def made(path: Path) -> Path:
    return private_folder(path, BackendError, "cache:")


def refused(path: Path) -> str:
    with pytest.raises(BackendError) as error:
        made(path)
    assert "\n" not in str(error.value) and str(path) in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022])
def test_what_is_made_is_for_its_owner_whatever_the_mask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        folder = made(tmp_path / "a" / "b")
        write_whole(folder / "file", b"x")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(p.stat().st_mode) for p in (folder.parent, folder, folder / "file")]
    assert modes == [0o700, 0o700, 0o600] and made(folder) == folder


@pytest.mark.parametrize("bit", [0o020, 0o002])
@pytest.mark.parametrize("above", [0, 1, 2])
def test_a_folder_that_others_can_write(tmp_path: Path, bit: int, above: int) -> None:
    """The folder itself, or one above it."""
    folder = made(tmp_path / "a" / "b" / "c")
    place = [folder, *folder.parents][above]
    place.chmod(0o755 | bit)
    assert re.search(rf"others may write .*try chmod go-w {place}, got mode=", refused(folder))
    place.chmod(0o755)
    assert made(folder) == folder


def test_the_sticky_bit_protects_what_is_below_a_folder_but_not_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    (tmp_path / "all").chmod(0o1777)
    folder = made(tmp_path / "all" / "own")
    assert "others may write it" in refused(tmp_path / "all")
    folder.chmod(0o1777)
    assert "others may write it" in refused(folder)


@ROOT_ONLY
@pytest.mark.parametrize("above", [0, 1])
def test_a_folder_of_somebody_else(tmp_path: Path, above: int) -> None:
    folder = made(tmp_path / "a" / "b")
    os.chown([folder, *folder.parents][above], 54321, -1)
    assert "owner=54321" in refused(folder)


@ROOT_ONLY
def test_roots_folder_is_not_that_of_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the folder root is trusted, but what lies in the folder must be the user's own."""
    folder = made(tmp_path / "a" / "b")
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert "must belong to you" in refused(folder)
    os.chown(folder, 54321, -1)
    assert made(folder) == folder


def test_a_link_is_followed_before_it_is_judged(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    (tmp_path / "link").symlink_to(open_to_all)
    with pytest.raises(BackendError, match="others may write"):
        made(tmp_path / "link")
    (tmp_path / "good").symlink_to(made(tmp_path / "own"))
    assert made(tmp_path / "good") == tmp_path / "own", "what is used is the place that was judged"


def test_a_sealed_file_is_what_was_written(tmp_path: Path) -> None:
    data = bytes(range(256)) * 3
    file = tmp_path / "file"
    assert read_sealed(file) is None
    write_sealed(file, data)
    whole = file.read_bytes()
    assert read_sealed(file) == data and list(tmp_path.iterdir()) == [file]
    for cut in range(0, len(whole), 7):
        file.write_bytes(whole[:cut])
        assert read_sealed(file) is None, cut
    for place in range(0, len(whole), 5):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert read_sealed(file) is None, place
    file.write_bytes(whole + b"x")
    assert read_sealed(file) is None
    write_sealed(file, b"")
    assert read_sealed(file) == b""


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError):
        write_whole(tmp_path / "taken", b"x")
    assert list(tmp_path.iterdir()) == [tmp_path / "taken"]
