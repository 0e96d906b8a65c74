"""What the task scheduler knows of a task, and the table that it prints."""

import math

from ansor.scheduler.report import Row, Summary, table_text
from ansor.scheduler.task_progress import TaskProgress

PAGE = """\
----------------------------------------------------------------------
------------------------------  [ Task Scheduler ]
----------------------------------------------------------------------
|  ID  | Latency (ms) | Speed (GFLOPS) | Trials |
-------------------------------------------------
|    0 |        0.005 |           0.88 |     64 |
|    1 |        0.063 |        1832.98 |    192 |
|    2 |            - |              - |      0 |
-------------------------------------------------
Estimated total latency: 1.587 ms  Trials: 4992  Used time : 13296 s  Next ID: 3"""


def test_the_table_is_that_of_the_tutorial():
    rows = [
        Row("", 5.1e-6, 0.88e9 * 5.1e-6, 64), Row("", 6.3e-5, 1832.98e9 * 6.3e-5, 192), Row("", None, 1e9, 0),
    ]  # fmt: skip
    summary = Summary(1.5868e-3, 4992, 13296.4)
    assert table_text(rows, summary, 3).replace("\t", "  ") == PAGE
    described = table_text([Row("conv " * 20, None, -1.0, 0), Row("add", 1.0, -1.0, 7)], Summary(None, 7, 0), None)
    widths = [len(line) for line in described.splitlines()]
    assert widths[3:8] == [113] * 5
    assert "...|".replace("|", " |") in described and "|           0.00 |      7 |" in described
    assert described.endswith("latency: - ms\tTrials: 7\tUsed time : 0 s\tNext ID: -")


def test_standing():
    progress = TaskProgress().after_round([3.0, math.inf, 2.0]).after_round([2.0, 5.0])
    assert progress == TaskProgress(5, 2.0, 3, (2.0, 2.0), False)
    assert progress.dead(2) and not progress.dead(3) and not progress.dead(None)
    assert progress.after_round([]).dead(None)
    assert TaskProgress().after_round([math.inf]).dead(1) and not TaskProgress().after_round([math.inf]).valid
