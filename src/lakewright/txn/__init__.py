"""Transactions: locks, instant times, heartbeats, markers, and the only code that changes an
instant's state."""
