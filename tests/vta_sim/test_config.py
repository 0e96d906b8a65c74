"""Configurations: what follows from the numbers, and which numbers fit no machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.vta_sim.streams import CONFIGS
from vta_sim import Config, ConfigError, load_config, preset
from vta_sim.core.config import TARGETS, config_from_json
from vta_sim.core.kinds import Memory

MEMORIES = {  # memory: element shape, bytes of an element, bytes of the buffer, depth, index bits
    Memory.UOP: ((), 4, 32768, 8192, 13),
    Memory.INP: ((1, 16), 16, 32768, 2048, 11),
    Memory.WGT: ((16, 16), 256, 262144, 1024, 10),
    Memory.ACC: ((1, 16), 64, 131072, 2048, 11),
    Memory.OUT: ((1, 16), 16, 32768, 2048, 11),
}


@pytest.mark.parametrize("memory", MEMORIES)
def test_memories_of_the_default_machine(memory: Memory) -> None:
    c = Config()
    found = (c.elem_shape(memory), c.elem_bytes(memory), c.buffer_bytes(memory), c.depth(memory), c.index_bits(memory))
    assert found == MEMORIES[memory]


def test_names_of_the_default_machine() -> None:
    assert Config().bitstream == "1x16_i8w8a32_15_15_18_17"
    assert preset("pynq").model == "pynq_1x16_i8w8a32_15_15_18_17"
    assert Config().elem_bytes(Memory.ACC_8BIT) == 16 and Config().depth(Memory.ACC_8BIT) == 2048


def test_presets_differ_in_name_only() -> None:
    for target in TARGETS:
        assert replace(preset(target), target="sim", hw_ver="0.0.2") == Config()
    assert preset("zcu104").hw_ver == "0.0.1"


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_file_is_read_as_it_was_written(config: Config, tmp_path: Path) -> None:
    path = tmp_path / "vta_config.json"
    path.write_text(json.dumps(config.to_json()))
    assert load_config(path) == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"TARGET": "abacus"}, "TARGET: must be one of sim, tsim"),
        ({"HW_VER": 2}, "HW_VER: must be a text"),
        ({"LOG_BLOCK": -1}, "LOG_BLOCK: must be a whole number from 0 to 30, got found=-1"),
        ({"LOG_BLOCK": 4.0}, "LOG_BLOCK: must be a whole number"),
        ({"LOG_BATCH": True}, "LOG_BATCH: must be a whole number"),
        ({"LOG_INP_WIDTH": 2}, "LOG_INP_WIDTH: must be 3, for the machine computes on int8"),
        ({"LOG_ACC_WIDTH": 4}, "LOG_ACC_WIDTH: must be 5"),
        ({"LOG_BLOCK": 7}, "an element of WGT must fit a page"),
        ({"LOG_INP_BUFF_SIZE": 4}, "LOG_INP_BUFF_SIZE: the memory must hold 2 to 65536 elements of 16 bytes"),
        ({"LOG_WGT_BUFF_SIZE": 26}, "LOG_WGT_BUFF_SIZE: the memory must hold 2 to 65536"),
        ({"LOG_ACC_BUFF_SIZE": 16}, "buffer sizes: the indices of a micro-op .* must fill 32 bits exactly"),
        ({"LOG_BATCH": 1}, "buffer sizes: the indices of a micro-op .* got acc=10 inp=10 wgt=10"),
        ({"LOG_UOP_BUFF_SIZE": 16}, "LOG_UOP_BUFF_SIZE: header, micro-op range and loop extents must fit 64 bits"),
        (
            {"LOG_ACC_BUFF_SIZE": 18, "LOG_WGT_BUFF_SIZE": 16},
            "LOG_ACC_BUFF_SIZE: the factors and the immediate of an ALU instruction must fit 64 bits",
        ),
        ({"LOG_OUT_BUFF_SIZE": 15}, "has keys that no configuration has"),
    ],
    ids=str,
)
def test_impossible_files(change: dict[str, object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "vta_config.json"
    path.write_text(json.dumps({**Config().to_json(), **change}))
    with pytest.raises(ConfigError, match=message) as error:
        load_config(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[1]", "{}", "\x00"])
def test_files_that_are_none(text: str, tmp_path: Path) -> None:
    path = tmp_path / "vta_config.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"vta_config.json: (no configuration|must be|lacks keys)"):
        load_config(path)
    with pytest.raises(ConfigError, match="no configuration can be read"):
        load_config(tmp_path / "nowhere.json")
    with pytest.raises(ConfigError, match="must be a JSON object"):
        config_from_json(None)
