"""Compilers and devices: NVRTC, modules, launches, timing, exported programs.

Law: the only folder that runs a compiler of CUDA or opens a device, each when it is first needed.

In reading order:

    first    toolkit, resources, cache, nvrtc, compile, array_checks, tensor_maps, timing, device
    then     architecture, module, export
"""
