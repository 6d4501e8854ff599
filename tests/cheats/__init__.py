"""Scripted policies that try to be rewarded without solving the task, and what becomes of them."""
