"""Logs: the journal, record lines, files of records, and the contexts that answer from them.

Law: data only; nothing executes.
"""
