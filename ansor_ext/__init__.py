"""Extensions: what Ansor's paper does not have, one folder each, found by the table in `te_lite/extensions.py`.

Law: nobody imports this package, and each folder can be deleted: what it offers is missing then, and all else works.
"""
