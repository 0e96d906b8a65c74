"""What a search uses, in one line: rules, sketches, model, evolution, runner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Uses:
    """The parts of a search.

    `own` is how many sketches the custom rules and those of the target made; `extra` says so of each extra rule.
    `generations` counts after the first; no `mutations`: programs are drawn at random.  `start` says what the search
    begins with.
    """

    custom_rules: Sequence[str]
    target: str
    own: int
    extra: Mapping[str, int]
    extra_off: bool
    model: str
    mutations: Sequence[str]
    population: int
    generations: int
    start: str = ""

    def text(self, runner: str) -> str:
        """The line."""
        start = f"; {self.start}" if self.start else ""
        return f"searching {self._sketches()}; model {self.model}; {self._evolution()}; runner {runner}{start}"

    def _sketches(self) -> str:
        rules = f"{', '.join(self.custom_rules)} and " if self.custom_rules else ""
        parts = [f"{self.own} by {rules}the rules of {self.target}"]
        parts += [f"{count} by {name}" for name, count in self.extra.items() if count]
        if self.extra_off:
            parts.append("the extra rules are off, since there are custom ones: extra_sketch_rules='all' asks for them")
        count = self.own + sum(self.extra.values())
        return f"{count} sketch{'' if count == 1 else 'es'} ({', '.join(parts)})"

    def _evolution(self) -> str:
        if not self.mutations:
            return "programs at random, without evolution and mutations"
        size = f"evolution of {self.population} programs over {self.generations} generations"
        return f"{size} by {', '.join(self.mutations)}"
