"""Chapter 11, 30 minutes: a convolution that hides its loads.

A 3x3 convolution on VTA: 14 x 14 pixels, 64 channels to 64 channels (4 blocks of 16 each). The tiles below are right,
and the modules take turns: compute waits for loads, loads for compute; 62,126 cycles in all. With virtual threads, one
thread's tile is loaded while another's is computed on. Choose the knobs so that the program takes 49,500 cycles at
most.

`tile_h`, `tile_w` are rows and columns of an output tile, `tile_ci`, `tile_co` blocks of channels, `oc_nthread` and
`h_nthread` the virtual threads over output channels and rows. All tiles of all threads share INP, WGT and ACC. The
check prints when which module was at work.
"""

KNOBS = {"tile_h": 14, "tile_w": 14, "tile_ci": 1, "tile_co": 2, "oc_nthread": 1, "h_nthread": 1}  # one thread ...
