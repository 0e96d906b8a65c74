"""The packages keep to the numbers of budget.json, of which the core's only fall; and the counting is right."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.architecture import adding
from tests.architecture.budget import (
    CORE,
    ROOT,
    Entered,
    code_lines,
    entered_files,
    exceeded,
    folders,
    is_core,
    lines_beside,
    lowered,
    measured,
    packages,
    table,
)
from tests.architecture.imports import PACKAGES


@pytest.fixture(scope="module")
def numbers() -> dict[str, int]:
    return measured()


def test_no_number_is_above_the_table(numbers: dict[str, int]) -> None:
    for name, number in numbers.items():
        print(f"{number:7}  {name}, at most {table().get(name)}")
    assert exceeded(numbers, table()) == []


def test_all_packages_are_counted(numbers: dict[str, int]) -> None:
    assert set(packages()) == set(PACKAGES) and set(packages()) & set(CORE)
    assert {f"code lines of {package}" for package in PACKAGES} <= set(numbers)
    assert 30 < numbers["files that a program enters"] < 200 < numbers["modules that `import ansor` loads"]


def test_a_number_above_the_table_is_told() -> None:
    limits = {"code lines of ansor": 10, "code lines of vta_sim": 10}
    core, ceiling, unknown = exceeded(
        {"code lines of ansor": 13, "code lines of vta_sim": 11, "code lines of ansor_ext": 1}, limits
    )
    assert "13, 3 above the 10" in core and "may not be raised" in core
    assert "11, 1 above the 10" in ceiling and "ceiling" in ceiling
    assert "has no limit" in unknown
    assert exceeded({"code lines of ansor": 10, "code lines of vta_sim": 4}, limits) == []


def test_writing_lowers_the_core_only() -> None:
    limits = {"code lines of ansor": 10, "code lines of te_lite": 10, "code lines of vta_sim": 10}
    today = {"code lines of ansor": 7, "code lines of te_lite": 12, "code lines of vta_sim": 7}
    assert lowered(today, limits) == {**limits, "code lines of ansor": 7}
    assert is_core("files that a program enters") and is_core("code lines of ansor")
    assert not is_core("code lines of relay_lite") and not is_core("code lines of ansor_ext/rows")


def test_a_program_of_the_paper_enters_no_extension() -> None:
    entered = entered_files()
    assert len(entered) > 30 and not [name for name in entered if name.startswith("ansor_ext")]


def test_a_network_enters_what_a_program_does() -> None:
    """And passes, default programs and libraries: a count that left one of these out would be too low."""
    entered = set(entered_files("make_network"))
    assert set(entered_files()) <= entered
    parts = ("relay_lite/transform", "ansor/policy/default_schedule", "codegen_c/library", "ansor_ext/")
    assert all(any(name.startswith(part) for name in entered) for part in parts)


def test_what_is_added_touches_few_files(numbers: dict[str, int]) -> None:
    """README, `__init__`, the class or rule, and the table; what does not work by these alone is no count."""
    assert 2 <= numbers["files touched by a kind of step that is added"] <= 4
    assert 2 <= numbers["files touched by a sketch rule that is added"] <= 4


NOT_IN_THE_TABLE = {"step": (adding.add_step, adding.USE_STEP), "rule": (adding.add_rule, adding.USE_RULE)}


@pytest.mark.parametrize("kind", NOT_IN_THE_TABLE)
def test_what_takes_another_file_is_told(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its line in the table an addition is not found, as if the core asked for a change somewhere else."""
    add, use = NOT_IN_THE_TABLE[kind]
    monkeypatch.setattr(adding, "in_the_table", lambda root, line: None)
    with pytest.raises(AssertionError, match=r"PEL|two_tiles"):
        adding.touched_by(add, use)


def test_a_file_that_is_changed_or_new_is_touched(tmp_path: Path) -> None:
    (tmp_path / "te_lite" / "new").mkdir(parents=True)
    for name in ("te_lite/errors.py", "te_lite/hooks.py"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "te_lite" / "hooks.py").write_text("x = 1\n")
    (tmp_path / "te_lite" / "new" / "a.py").write_text("")
    assert adding.changed(tmp_path) == ["te_lite/hooks.py", "te_lite/new/a.py"]


def test_lines_are_counted_as_sz_counts_them(tmp_path: Path) -> None:
    text = (
        '"""What it is.\n\nMore.\n"""\n\n# why\nx = [\n    1,  # one\n\n    # none\n]\n'
        'def f():\n    """What it does."""\n    return f"""a\n\nb"""\n'
    )
    assert code_lines(text) == 7
    (tmp_path / "te_lite" / "inner").mkdir(parents=True)
    (tmp_path / "te_lite" / "a.py").write_text(text)
    (tmp_path / "te_lite" / "inner" / "b.py").write_text("x = 1\n")
    (tmp_path / "te_lite" / "inner" / "b.h").write_text("int x;\n\nint y;\n")
    assert folders("te_lite", tmp_path) == {"te_lite": 7, "te_lite/inner": 1}
    assert lines_beside("te_lite", tmp_path) == 2 and packages(tmp_path) == ["te_lite"]


def test_imports_do_not_enter_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that is imported late runs its body and functions of others; only those count that run afterwards."""
    (tmp_path / "late.py").write_text("import helper\nx = helper.f()\ndef g():\n    return x\n")
    (tmp_path / "helper.py").write_text("def f():\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    entered = Entered()
    before = sys.getprofile()
    sys.setprofile(entered)
    import late  # type: ignore[import-not-found]

    late.g()
    sys.setprofile(before)
    assert {Path(name).name for name in entered.files if Path(name).parent == tmp_path} == {"late.py"}


def test_a_file_is_entered_by_each_kind_of_function() -> None:
    entered = Entered()
    code = SimpleNamespace(co_name="<lambda>", co_filename=f"{ROOT}/te_lite/a.py")
    entered(SimpleNamespace(f_code=code), "call", None)  # type: ignore[arg-type]
    entered(SimpleNamespace(f_code=code), "return", None)  # type: ignore[arg-type]
    assert entered.files == {f"{ROOT}/te_lite/a.py"}
