"""A tuner of one's own: walks from the best configuration so far to its neighbours.

A tuner says what to measure next (`plan`) and may learn from the results (`learn`).  The template here computes
nothing, and a formula takes the place of the device, so this runs anywhere.
"""

import numpy as np

from ansor import autotvm
from ansor.autotvm.tuner import RandomTuner, Tuner


@autotvm.template("tiles")
def tiles(n: int) -> None:
    cfg = autotvm.get_config()
    for name in ("tile_x", "tile_y", "tile_k"):
        cfg.define_split(name, n, num_outputs=3)
    cfg.add_flop(2.0 * n**3)


class Formula:
    """A device: builds a configuration into the lengths of its tiles, and likes them to be 8 and 16."""

    def build(self, task, config):
        return np.array([split.size[1:] for _, split in config.items()])

    def run(self, task, program, options):
        return [1e-3 * (1 + np.abs(np.log2(program / [8, 16])).sum())]


class Walk(Tuner):
    """Changes one knob of the best configuration; what was measured before is dropped by the base class."""

    def plan(self):
        if self.best_config is None:
            return self.unseen.sample(4, self.rng)
        digits = np.tile(self.space.digits(np.array([self.best_config.index])), (8, 1))
        knobs = self.rng.integers(digits.shape[1], size=8)
        digits[np.arange(8), knobs] = self.rng.integers(np.array(self.space.dims)[knobs])
        return [*self.space.indices(digits), *self.unseen.sample(1, self.rng)]


if __name__ == "__main__":
    option = autotvm.measure_option(autotvm.LocalBuilder(backend=Formula()), autotvm.LocalRunner())
    for kind in (RandomTuner, Walk):
        tuner = kind(autotvm.create("tiles", (512,), "c"), rng=np.random.default_rng(1))
        tuner.tune(100, option)
        print(f"{kind.__name__}: {tuner.best_flops / 1e9:.1f} GFLOPS with {tuner.best_config.values()}")
