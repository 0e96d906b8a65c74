"""What all files here speak of: the kernels of a program, facts for their launch, errors, indices.

Law: values; nothing is printed, changed or compiled.

In reading order:

    files    errors, cuda_program, facts, indices
"""
