"""A chart as a file of its own, with the style that a page would give it."""

from __future__ import annotations

from ansor.report.svg import Chart

STYLE = (
    "<style>.line{fill:none;stroke:#06c}.grid{stroke:#ddd}.axis{stroke:#333}"
    ".dot{fill:#c30}.cross{fill:none;stroke:#555;stroke-width:2}text{font:11px sans-serif}</style>"
)


def chart_file(chart: Chart, label: str) -> str:
    """The SVG file; `label` says what it shows to those who do not see it."""
    head, rest = chart.svg(label).split(">", 1)
    return head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + ">" + STYLE + rest
