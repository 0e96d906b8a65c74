"""Two virtual threads over output channels, each with a tile of two blocks: every tile of inputs serves twice."""

KNOBS = {"tile_h": 14, "tile_w": 14, "tile_ci": 1, "tile_co": 2, "oc_nthread": 2, "h_nthread": 1}
