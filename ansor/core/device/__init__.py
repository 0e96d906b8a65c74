"""What a backend offers, asked in one way: programs, arrays, networks, exports.

Law: protocols and what is common to all devices; no device itself.

In reading order:

    first    network_plan, read_plan, exported_program, backend, network_backend, nd, network_memory
    then     loaded_module, build, export
"""
