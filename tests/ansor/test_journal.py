"""The log file survives torn writes, concurrent writers, full disks and hostile neighbours."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

import ansor
from ansor.records.journal import append_lines, replace_file, scan_lines
from ansor.records.lines import dump_record_to_string
from tests.nonempty import nonempty


def lines_of(path):
    return [line for _, line in scan_lines(path)]


def test_a_torn_tail_is_harmless_at_every_byte(tmp_path, record):
    lines = [dump_record_to_string(*record(1e-3 * k)) for k in range(1, 4)]
    whole = "".join(line + "\n" for line in lines).encode()
    last = len(whole) - len(lines[-1]) - 1
    later = dump_record_to_string(*record(9e-3))
    for cut in nonempty(range(last, len(whole))):
        path = tmp_path / f"log{cut}"
        path.write_bytes(whole[:cut])
        kept = 3 if cut >= len(whole) - 1 else 2
        assert len(list(ansor.load_records(path))) == kept
        append_lines(path, [later])
        assert [r.cost for _, r in ansor.load_records(path)] == [1e-3, 2e-3, 3e-3][:kept] + [9e-3]
        torn = path.with_name(path.name + ".torn")
        fragment = whole[last:cut]
        assert (torn.read_bytes() == fragment + b"\n") if fragment and kept == 2 else not torn.exists()


def test_a_file_that_is_one_torn_line(tmp_path, record):
    path = tmp_path / "log"
    path.write_bytes(b"x" * 200_000)
    append_lines(path, [dump_record_to_string(*record())])
    assert len(list(ansor.load_records(path))) == 1
    assert path.with_name("log.torn").read_bytes() == b"x" * 200_000 + b"\n"


@pytest.mark.long
def test_concurrent_writers_lose_nothing(tmp_path):
    path = tmp_path / "log"
    code = textwrap.dedent("""
        import sys
        from ansor.records.journal import append_lines
        for k in range(100):
            append_lines(sys.argv[1], ['{"writer": %s, "k": %d, "pad": "%s"}' % (sys.argv[2], k, "x" * (k * 37 % 900))])
    """)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    writers = [subprocess.Popen([sys.executable, "-c", code, path, str(w)], env=env) for w in range(4)]
    assert [w.wait(120) for w in writers] == [0] * 4
    seen = [json.loads(line) for line in lines_of(path)]
    assert sorted((s["writer"], s["k"]) for s in seen) == [(w, k) for w in range(4) for k in range(100)]
    for w in range(4):
        assert [s["k"] for s in seen if s["writer"] == w] == list(range(100))


def test_a_full_disk_is_one_sentence_and_leaves_the_log_whole(tmp_path, record):
    with pytest.raises(ansor.JournalError, match="/dev/full: cannot be written: No space left on device"):
        append_lines("/dev/full", ["{}"])
    path = tmp_path / "log"
    append_lines(path, [dump_record_to_string(*record())])
    code = textwrap.dedent("""
        import os, resource, signal, sys
        from ansor.core.errors import JournalError
        from ansor.records.journal import append_lines
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        size = os.path.getsize(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, size + 10))
        try:
            append_lines(sys.argv[1], ["x" * 100])
        except JournalError as error:
            print(error)
    """)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code, path], env=env, capture_output=True, text=True, check=True)
    assert "cannot be written" in done.stdout
    assert len(list(ansor.load_records(path))) == 1 and path.read_bytes().endswith(b"}\n")


def test_missing_places(tmp_path):
    with pytest.raises(ansor.JournalError, match="cannot be read: No such file"):
        list(ansor.load_records(tmp_path / "nothing"))
    with pytest.raises(ansor.JournalError, match="cannot be written"):
        ansor.RecordToFile(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ansor.JournalError, match=r"Not a directory|File exists"):
        ansor.RecordToFile(tmp_path / "file" / "log")
    made = ansor.RecordToFile(tmp_path / "new" / "deep" / "log")
    assert not (tmp_path / "new").exists(), "nothing is made before there is something to keep"
    made.usage([])
    assert (tmp_path / "new" / "deep" / "log").is_file()


def test_a_replaced_log_gets_the_next_line(tmp_path):
    path = tmp_path / "log"
    append_lines(path, ["{}"])
    replace_file(path, ['{"a": 1}'])
    append_lines(path, ['{"b": 2}'])
    assert lines_of(path) == [b'{"a": 1}', b'{"b": 2}']
    assert os.listdir(tmp_path) == ["log"]
