"""Features: what cost models know of a program, for thousands of programs at once, without lowering any.

Law: numbers about programs, from bounds only.

programs_of, extract, state_features   from programs to float32 [programs, rows, columns]
SCHEMA, VERSION                        what each column says
"""

from .extraction import extract, programs_of, state_features
from .merge import states_features
from .schema import INDEX, SCHEMA, VERSION, schema_hash

__all__ = ["INDEX", "SCHEMA", "VERSION", "extract", "programs_of", "schema_hash", "state_features", "states_features"]
