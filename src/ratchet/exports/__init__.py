"""Environments in the formats that other tools read: one module per format, each with one function."""
