"""Files of accelerator networks that were changed are refused in one sentence, or are libraries."""

from __future__ import annotations

import io
import json
import random
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")

from relay_lite.ir.errors import GraphError
from tests.relay_lite.hostile_exports import arrays_file, changed_json
from tests.vta_sim.networks import quantized
from vta_sim.graph import graph_pack
from vta_sim.network.library import CONSTANTS, GRAPH, build, load_library


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar.getmembers()}  # type: ignore[union-attr]


def write(path: Path, parts: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, data in parts.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = tmp_path_factory.mktemp("library") / "lib.tar"
    build(graph_pack(quantized(), 1, 16, 8, device_annot=True)).export_library(path)
    return members(path)


@pytest.mark.long
@pytest.mark.parametrize("count", [25, pytest.param(500, marks=pytest.mark.slow)])
def test_hostile_libraries(whole: dict[str, bytes], tmp_path: Path, count: int) -> None:
    rng, refused, path = random.Random(count), 0, tmp_path / "lib.tar"
    facts = json.loads(whole[GRAPH])
    for _ in range(count):
        parts = dict(whole)
        if rng.random() < 0.3:
            parts[CONSTANTS] = arrays_file(rng, whole[CONSTANTS])
        else:
            parts[GRAPH] = json.dumps(changed_json(rng, facts)).encode()
        write(path, parts)
        try:
            load_library(path)
        except GraphError as error:
            refused += 1
            assert "\n" not in str(error) and len(str(error)) < 2000
    assert refused > count // 4


def test_a_member_that_is_no_plain_file(whole: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "lib.tar"
    with tarfile.open(path, "w") as tar:
        link = tarfile.TarInfo(GRAPH)
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        tar.addfile(link)
    with pytest.raises(GraphError, match="no network can be read"):
        load_library(path)
