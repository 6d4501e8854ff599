"""Python's syntax trees for several threads at once. Whoever parses Python does it here."""

from __future__ import annotations

import ast
import threading
import warnings

# CPython 3.11 counts the depth of the tree that it makes in one place for all threads, and a switch of threads in the
# middle ends in a SystemError ("AST constructor recursion depth mismatch"). The filters of warnings are shared too.
_ONE_AT_A_TIME = threading.Lock()


def tree_of(text: str) -> ast.Module:
    """`ast.parse`, which raises as that does, for several threads and without warnings."""
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)
