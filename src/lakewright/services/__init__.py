"""Table services: one file per verb, each plannable, killable and repeatable."""
