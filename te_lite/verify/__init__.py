"""The verifier: form, accesses in bounds, races, of a lowered program.

Law: proves or refutes and changes nothing; it does not ask how a program was made.

In reading order:

    first    verify_span, verify_points, verify_form, verify_scope
    then     verify_walk, verify_access, verify_reads, verify_clash, verify_digits, verify_phases
    then     verify
"""
