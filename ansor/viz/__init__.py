"""Pictures of computations, programs and tables, as SVG: `ansor draw`.

Law: reads states, programs and tables; measures nothing, and asks no device.
"""
