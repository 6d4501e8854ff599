"""The languages in which tasks are made, as data: what the nodes of their syntax trees are called.

The names are those of the tree-sitter grammars. Another language is another entry of `LANGUAGES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath


@dataclass(frozen=True)
class Language:
    """`grammar` is "module:function" of the package with the grammar. `stub` is the body of what is not there;
    `operators` say for each operator by which others a person might write it wrongly."""

    name: str
    suffixes: tuple[str, ...]
    grammar: str
    functions: frozenset[str]
    classes: frozenset[str]
    stub: str
    operators: Mapping[str, tuple[str, ...]]
    conjunctions: frozenset[str]
    constants: Mapping[str, str]
    integers: frozenset[str]
    strings: frozenset[str]
    blocks: frozenset[str]
    # Where variables get their first value: the node, and the field with the names.
    bindings: Mapping[str, str]
    negation: str = "!"
    # Taken for another constant only where it is returned.
    nothing: frozenset[str] = frozenset({"null"})
    comments: frozenset[str] = frozenset({"comment"})
    negations: frozenset[str] = frozenset()
    awaits: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset({"call_expression", "new_expression"})
    defaults: frozenset[str] = frozenset()
    clauses: frozenset[str] = frozenset()
    pairs: frozenset[str] = frozenset()
    early_exits: frozenset[str] = frozenset({"return_statement", "break_statement", "continue_statement"})
    # Not looked into: what changes there is seen by nobody, or by everybody.
    opaque: frozenset[str] = frozenset()
    # Nothing is judged by what these print.
    quiet_calls: str = (
        r"(?:\w+\.)*(?:_?(?:log|logger|logging|warnings|console)\.\w+|print|debug|info|warn|warning|printf|fprintf)\("
    )
    # Swapping their arguments changes nothing, or is a mistake that nobody makes.
    symmetric_calls: str = r"(?:\w+\.)*(?:min|max|gcd|lcm|isinstance|issubclass|hasattr|getattr|setattr|super)\("


_COMPARISONS = {
    "<": ("<=", ">"),
    "<=": ("<", ">="),
    ">": (">=", "<"),
    ">=": (">", "<="),
    "==": ("!=",),
    "!=": ("==",),
}
_ARITHMETIC = {
    "+": ("-",),
    "-": ("+",),
    "*": ("+",),
    "/": ("*",),
    "%": ("*",),
    "<<": (">>",),
    ">>": ("<<",),
    "&": ("|",),
    "|": ("&",),
    "+=": ("-=", "="),
    "-=": ("+=", "="),
    "*=": ("+=",),
}

PYTHON = Language(
    name="python",
    suffixes=(".py",),
    grammar="tree_sitter_python:language",
    functions=frozenset({"function_definition"}),
    classes=frozenset({"class_definition"}),
    stub="raise NotImplementedError",
    operators={
        **_COMPARISONS,
        **_ARITHMETIC,
        "//": ("/",),
        "**": ("*",),
        "and": ("or",),
        "or": ("and",),
        "is": ("is not",),
        "is not": ("is",),
        "in": ("not in",),
        "not in": ("in",),
    },
    conjunctions=frozenset({"and", "or"}),
    constants={"true": "False", "false": "True", "none": "False"},
    integers=frozenset({"integer"}),
    strings=frozenset({"string"}),
    blocks=frozenset({"block"}),
    bindings={"assignment": "left", "for_statement": "left"},
    negation="not ",
    nothing=frozenset({"none"}),
    negations=frozenset({"not_operator"}),
    awaits=frozenset({"await"}),
    calls=frozenset({"call"}),
    defaults=frozenset({"default_parameter", "typed_default_parameter"}),
    clauses=frozenset({"elif_clause", "else_clause", "except_clause", "case_clause"}),
    pairs=frozenset({"pair"}),
    early_exits=frozenset({"return_statement", "break_statement", "continue_statement", "raise_statement"}),
    opaque=frozenset(
        {
            "type",
            "decorator",
            "raise_statement",
            "assert_statement",
            "import_statement",
            "import_from_statement",
        }
    ),
)

_CURLY_OPERATORS = {**_COMPARISONS, **_ARITHMETIC, "&&": ("||",), "||": ("&&",)}

JAVASCRIPT = Language(
    name="javascript",
    suffixes=(".js", ".mjs", ".cjs", ".jsx"),
    grammar="tree_sitter_javascript:language",
    functions=frozenset(
        {
            "function_declaration",
            "method_definition",
            "generator_function_declaration",
            "function_expression",
            "arrow_function",
        }
    ),
    classes=frozenset({"class_declaration"}),
    stub='throw new Error("not implemented")',
    operators={**_CURLY_OPERATORS, "===": ("!==",), "!==": ("===",), "??": ("||",)},
    conjunctions=frozenset({"&&", "||"}),
    constants={"true": "false", "false": "true", "null": "undefined"},
    integers=frozenset({"number"}),
    strings=frozenset({"string"}),
    blocks=frozenset({"statement_block"}),
    bindings={"variable_declarator": "name", "for_in_statement": "left"},
    negations=frozenset({"unary_expression"}),
    awaits=frozenset({"await_expression"}),
    defaults=frozenset({"assignment_pattern"}),
    clauses=frozenset({"else_clause", "switch_case"}),
    pairs=frozenset({"pair"}),
    early_exits=frozenset({"return_statement", "break_statement", "continue_statement", "throw_statement"}),
    opaque=frozenset({"throw_statement", "template_string", "import_statement", "type_annotation"}),
)

TYPESCRIPT = replace(
    JAVASCRIPT, name="typescript", suffixes=(".ts", ".tsx"), grammar="tree_sitter_typescript:language_tsx"
)

C = Language(
    name="c",
    suffixes=(".c", ".h"),
    grammar="tree_sitter_c:language",
    functions=frozenset({"function_definition"}),
    classes=frozenset(),
    stub="__builtin_trap();",
    operators=_CURLY_OPERATORS,
    conjunctions=frozenset({"&&", "||"}),
    constants={"true": "false", "false": "true"},
    integers=frozenset({"number_literal"}),
    strings=frozenset({"string_literal"}),
    blocks=frozenset({"compound_statement"}),
    bindings={"init_declarator": "declarator"},
    negations=frozenset({"unary_expression"}),
    clauses=frozenset({"else_clause", "case_statement"}),
    opaque=frozenset({"preproc_include", "preproc_def"}),
)

CPP = replace(
    C,
    name="c++",
    suffixes=(".cc", ".cpp", ".cxx", ".hpp", ".hh"),
    grammar="tree_sitter_cpp:language",
    classes=frozenset({"class_specifier", "struct_specifier"}),
)

LANGUAGES = (PYTHON, JAVASCRIPT, TYPESCRIPT, C, CPP)


def language_of(path: str) -> Language | None:
    """The language of a file by the end of its name; None where it is none of these."""
    suffix = PurePosixPath(path).suffix.lower()
    return next((language for language in LANGUAGES if suffix in language.suffixes), None)
