"""What tensor cores and their memory ask for, as data: instructions, fragments, swizzled rows.

Law: tables and layouts; what applies, lowers, verifies and runs them lies in the folders above.

In reading order:

    files    fragment, fragment_text, mma, fragment_storage, swizzle
"""
