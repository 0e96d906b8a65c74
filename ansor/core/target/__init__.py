"""What programs are made for: kinds and their options, the registry of backends, hardware figures.

Law: names and numbers; a backend is known by the name of its module only.

In reading order:

    files    registry, target, hardware
"""
