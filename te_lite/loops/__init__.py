"""Loop programs: statements, how they are printed, and what emitters ask of them.

Law: statements as values, and facts that are read off them; knows no schedule.

In reading order:

    files    stmt, perfect_nest, register_tile, stmt_text, names, width, stored_text, c_text
"""
