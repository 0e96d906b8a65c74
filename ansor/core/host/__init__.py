"""This machine and this process: cores, memory, other programs, what is installed.

Law: asks the operating system; knows no target and no task.

In reading order:

    files    process, command, hints, start_up
"""
