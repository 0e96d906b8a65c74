"""What everything else speaks of: targets, hardware, workloads, tasks, measurement values, protocols of devices.

Law: values and protocols; nothing here searches, measures or reads a log.

Read them in this order; none imports one that comes after it:

    refusals    errors
    folders     values, host, files, target, tasks, device
"""
