"""Encodings without table semantics: bytes in, columns out, and back."""
