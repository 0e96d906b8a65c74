"""Targets and hardware parameters: what is understood, what is filled in, what is refused."""

from __future__ import annotations

import platform
from dataclasses import replace

import pytest

import ansor
from ansor.core.errors import TaskError
from ansor.core.target import registry
from ansor.core.target.hardware import GPUS, HardwareParams
from ansor.core.target.target import Target
from ansor.core.tasks.task import TaskFacts
from codegen_c.processor import host_options


@pytest.mark.parametrize(
    ("text", "kind", "gpu"),
    [
        ("c", "c", False),
        ("cpu", "c", False),
        ("llvm -keys=cpu -mcpu=skylake-avx512", "c", False),
        ("cuda -keys=cuda,gpu -arch=sm_90 -max_num_threads=1024", "cuda", True),
        ("vta", "vta", False),
    ],
)
def test_targets(text: str, kind: str, gpu: bool) -> None:
    target = Target(text)
    assert target.kind.name == kind and str(target.kind) == kind
    assert target.is_gpu == gpu
    assert str(target) == text and Target.of(target) is target and Target.of(text) == target


def test_target_options() -> None:
    assert Target("cuda -arch=sm_90 -libs=cublas,cudnn -system-lib").attrs == {
        "arch": "sm_90", "libs": "cublas,cudnn", "system-lib": "",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["opencl", "", "CUDA"])
def test_unknown_target(text: str) -> None:
    with pytest.raises(TaskError, match=r"unknown, (did you mean cuda\? )?known targets are c, cuda, vta, cpu, llvm$"):
        Target(text)


def test_target_refuses_loose_words() -> None:
    with pytest.raises(TaskError, match=r"options are -name or -name=value, got 'sm_90'"):
        Target("cuda sm_90")
    with pytest.raises(TaskError, match="is written as a text"):
        Target(7)  # type: ignore[arg-type]


def test_defaults_by_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert HardwareParams.for_target("c").to_json() == [3, host_options().vector_bytes, 64, 0, 0, 0, 0, 0]
    assert HardwareParams(target="cuda").to_json() == [-1, 16, 64, 49152, 2**31 - 1, 1024, 8, 32]
    assert HardwareParams(num_cores=4) == HardwareParams(4, host_options().vector_bytes, 64, 0, 0, 0, 0, 0)
    assert HardwareParams.for_target("c -march=haswell").vector_unit_bytes == 64
    assert HardwareParams(target="vta").of_another_kind
    monkeypatch.setitem(registry._TABLE, "templates", registry.Entry("no_module", ""))
    with pytest.raises(TaskError, match="no defaults"):
        HardwareParams(target="templates")


def test_presets_of_gpus() -> None:
    """A model widens what a block may have; without one the space is TVM's."""
    for model, preset in GPUS.items():
        for text in (model, model.lower()):
            assert HardwareParams.for_target(f"cuda -model={text}") == preset
        assert preset.to_json()[:3] + preset.to_json()[4:] == [-1, 16, 64, 2**31 - 1, 1024, 8, 32]
        assert 64 * 1024 <= preset.max_shared_memory_per_block <= 227 * 1024
    assert HardwareParams.for_target("cuda -model=unknown") == HardwareParams.for_target("cuda")
    with pytest.raises(TaskError, match=r"known models are V100, .*, got model='H9000'"):
        HardwareParams.for_target("cuda -model=H9000")


def test_a_processor_tells_the_vectors_that_programs_are_written_with() -> None:
    """Estimates and features read a task's numbers: with those of another processor they praise what is slow here."""
    usual = HardwareParams.for_target("c")
    assert HardwareParams.from_device("c") == replace(usual, vector_unit_bytes=host_options().vector_bytes)
    if "x86" in platform.machine():
        assert HardwareParams.from_device("c -mcpu=x86-64").vector_unit_bytes == 16


def test_completion_keeps_what_was_given() -> None:
    some = HardwareParams(num_cores=4, warp_size=16)
    assert some.completed("cuda").to_json() == [4, 16, 64, 49152, 2**31 - 1, 1024, 8, 16]
    whole = HardwareParams(*range(1, 9))
    assert whole.completed("cuda") is whole
    with pytest.raises(TaskError, match="max_threads_per_block: a GPU needs at least 1, got 0"):
        HardwareParams(target="c").completed("cuda")


@pytest.mark.parametrize("value", ["4", 2.5, -2, True])
def test_bad_numbers(value: object) -> None:
    with pytest.raises(TaskError, match="hardware parameter num_cores"):
        HardwareParams(num_cores=value)  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "sentence"), [
    ("c -foo", "unknown option, options of c are -"),
    ("c -foo=3", "option='-foo=3'"),
    ("llvm -mattr=+avx2", "unknown option"),
    ("c -march=native -num-cores=4", "unknown option"),
    ("cuda -arhc=sm_90", "did you mean arch? options of cuda are -arch, "),
    ("cuda -arch", "-arch needs a value"),
    ("cuda -arch=sm_90;x", "-arch needs a value of letters, digits"),
    ("c --", "unknown option"),
    ("c 4", "options are -name or -name=value, got '4'"),
])  # fmt: skip
def test_unknown_options_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(TaskError) as caught:
        Target(text)
    assert repr(text) in str(caught.value) and sentence in str(caught.value), caught.value


def test_a_backend_of_ones_own_judges_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))
    registry.register_backend("toy", "examples.seams.custom_backend")
    assert Target("toy -whatever=3").attrs == {"whatever": "3"}


def test_a_record_may_have_options_that_are_not_known_here() -> None:
    foreign = "llvm -keys=cpu -link-params=0 -mattr=+avx2 -num-cores 4"
    assert str(Target.recorded(foreign)) == "llvm -keys=cpu -link-params=0"
    assert str(Target.recorded("cuda -arch=sm_90 -foo")) == "cuda -arch=sm_90"
    for text in ("quantum -x", ""):
        with pytest.raises(TaskError, match="unknown"):
            Target.recorded(text)
    task = ansor.SearchTask.from_facts(TaskFacts('["f", 1]', foreign))
    assert task.target.kind.name == "c" and task.facts().target == foreign
