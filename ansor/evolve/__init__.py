"""Evolution: mutation, crossover, selection and neighbours of rows.

Law: scores in, rows out.
"""
