"""Writes that look up records: upsert, delete, partial update."""
