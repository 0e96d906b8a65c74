"""The block emulator: emitted kernels run on the CPU, with checks; its C++ lies here, too.

Law: needs no GPU and no compiler of CUDA; the other folders do not know it.

In reading order:

    files    inline_ptx, emulator_ptx, emulator_report, emulator_build, emulated_maps, emulator

and of the C++ what kernels include (bits, half, mma, hopper_ptx, cuda), and their host (findings, order, memory,
tensor_core, block, barriers, copy_engine, host).
"""
