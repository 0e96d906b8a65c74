"""What everything else speaks of: targets, hardware, workloads, tasks, measurement values, protocols of devices.

Law: values and protocols; nothing here searches, measures or reads a log.
"""
