"""What logs say, as a page to read: `ansor report LOG`.

Law: reads records; measures nothing, and asks no device.
"""
