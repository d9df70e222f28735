"""Schedules that break a promise: drawn at random (`at_random`), or all of them (`everything`)."""
