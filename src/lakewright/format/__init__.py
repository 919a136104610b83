"""The table format: what is on storage, as values that read and write it."""
