"""What is searched: workloads, tasks, the values and protocols of measurement.

Law: says what is to be done; whoever does it is above.

In reading order:

    files    workloads, catalog_operators, catalog, task, measure_values, protocols, networks
"""
