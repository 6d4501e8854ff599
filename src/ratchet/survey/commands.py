"""What a shell command is for: it tests, builds, lints, installs, documents or launches.

The tables are read from the top; the first that knows the program, or a word of its arguments, decides.
"""

from __future__ import annotations

import re
import shlex

from ratchet.survey.formats import names

_TEST_RUNNERS = names(
    """
    pytest py.test nosetests nose nose2 stestr ostestr testr trial twisted.trial unittest testtools.run ctest
    zope-testrunner zope.testrunner green ward sybil doctest subunit.run xdoctest detox avocado robot behave lettuce
    """
)
_LINTERS = names(
    """
    ruff flake8 black isort mypy pylint pyright basedpyright pre-commit prek bandit codespell pycodestyle pydocstyle
    yapf vulture check-manifest doc8 rstcheck pyupgrade interrogate safety lint-imports cython-lint stubtest
    mypy.stubtest autoflake blacken-docs zizmor actionlint pyroma ty slotscheck
    """
)
_DOCUMENTERS = names("sphinx-build sphinx-autobuild sphinx-apidoc sphinx mkdocs pdoc pdoc3 pydoctor towncrier")
_BUILDERS = names("build cibuildwheel maturin meson ninja cmake cython cythonize configure autoreconf pyproject-build")
_LAUNCHERS = names("uvicorn gunicorn hypercorn daphne celery honcho streamlit waitress-serve runserver")
_KIND_OF_PROGRAM = {
    **dict.fromkeys(_TEST_RUNNERS, "test-command"),
    **dict.fromkeys(_LINTERS, "lint-command"),
    **dict.fromkeys(_DOCUMENTERS, "docs-command"),
    **dict.fromkeys(_BUILDERS, "build-command"),
    **dict.fromkeys(_LAUNCHERS, "launch-command"),
}
_INSTALLERS = names(
    """
    apt apt-get aptitude yum dnf apk brew conda mamba micromamba pip uv poetry pdm pipenv npm yarn easy_install gem
    choco port zypper pacman rustup uv-pip pipx
    """
)
_INSTALL_WORDS = names("install add sync update create ci upgrade develop lock venv uninstall")
_ENVIRONMENT_MAKERS = names("virtualenv venv activate source mkvirtualenv pyenv")
_TASK_RUNNERS = names(
    "make gmake just invoke inv task poe taskipy hatch pdm npm yarn pnpm cargo go tox nox flit poetry uv doit rake "
)
# Words of a target, session or script name, looked for in this order.
_TASK_WORDS = (
    ("lint-command", re.compile(r"lint|style|format|\bfmt|typing|typecheck|mypy|types\b|pre-?commit|flake8|pep8|ruff")),
    ("docs-command", re.compile(r"docs?\b|html|linkcheck|sphinx|changelog|documentation")),
    ("test-command", re.compile(r"test|check|unit|cover|\bpy(?:py)?\d|\bcov\b|suite")),
    ("build-command", re.compile(r"build|compile|inplace|cython|\ball\b|dist|wheel|ext\b")),
    ("launch-command", re.compile(r"^(?:run|serve|start|server|up)$")),
)
_SETUP_WORDS = (
    ("test-command", names("test pytest nosetests ptr testr green trial")),
    ("install-command", names("install develop")),
    ("build-command", names("build build_ext build_py build_clib build_rust sdist bdist bdist_wheel bdist_egg")),
    ("docs-command", names("build_sphinx")),
)
_TEST_SCRIPT = re.compile(r"^(?:run_?-?)?(?:all_?)?tests?_?(?:all|suite|runner)?(?:\.py|\.sh)?$|^test_\w+\.py$")
_TEST_MODULE = re.compile(r"^(?:\w+\.)+(?:tests?|runtests|test_\w+|testsuite)(?:\.\w+)*$")
_WRAPPER = re.compile(
    r"""^(?:sudo(?:\s+-\w+)*|time|exec|command|nohup|xvfb-run(?:\s+-\S+)*|timeout\s+\S+|env|catchsegv|unbuffer
    |[A-Za-z_]\w*=(?:"[^"]*"|'[^']*'|\S*)
    |(?:poetry|pdm|pipenv|rye|pixi)\s+run|hatch\s+(?:-\S+\s+)*run(?:\s+-\S+)*
    |uv\s+run(?:\s+(?:-p|--python|--group|--extra|--with|--only-group|--no-group|--package)[ =]\S+|\s+-\S+)*
    |uvx|pipx\s+run|(?:\S*/)?(?:python[\d.]*|py|\$\{?PYTHON\}?|\$\(PYTHON\))(?:\s+-[XW]\s+\S+|\s+-[a-zA-Z]\S*)*?\s+-m(?=\s)
    |coverage[\d.]*\s+run(?:\s+-(?!m\s)\S+)*(?:\s+-m)?(?=\s)|@|-(?=\w))\s*""",
    re.VERBOSE,
)
_PYTHON = re.compile(r"(?:.*/)?(?:python[\d.]*|py|\$\{?PYTHON\}?|\$\(PYTHON\))$")
_CHAIN = re.compile(r"\s*(?:&&|\|\||;|\|)\s*")
_ORDER = ("test-command", "build-command", "docs-command", "lint-command", "launch-command", "install-command")
MAX_LOOKED_AT = 600


def classify(command: str) -> str:
    """The kind of fact that a command is. Of a chain, the most telling part decides: a test before a build, and
    so on down to installing."""
    kinds = {_classify(part) for part in _CHAIN.split(command[:MAX_LOOKED_AT]) if part.strip()}
    return next((kind for kind in _ORDER if kind in kinds), "command")


def unwrapped(command: str) -> str:
    """The command without `sudo`, `NAME=value`, `poetry run`, `python -m`, `coverage run -m` and their like."""
    for _ in range(8):
        shorter = _WRAPPER.sub("", command, count=1)
        if shorter == command or not shorter:
            return command
        command = shorter
    return command


def words(command: str) -> list[str]:
    """The command's words as a shell splits them; at blanks where its quotes do not close."""
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def _classify(command: str) -> str:
    argv = words(unwrapped(command))
    while argv and (_PYTHON.match(argv[0]) or argv[0] in ("bash", "sh")):  # a script that Python or the shell runs
        argv = argv[1:]
        while argv and argv[0].startswith("-"):
            if argv[0] == "-c":
                return "command"
            argv = argv[1:]
    if not argv:
        return "command"
    path, arguments = argv[0], argv[1:]
    name = path.rsplit("/", 1)[-1]
    program = name if name in _KIND_OF_PROGRAM else re.sub(r"[-]?[\d.]+$", "", name)
    if program in _ENVIRONMENT_MAKERS or path == "." or (program == "git" and "clone" in arguments[:3]):
        return "install-command"
    if program in _INSTALLERS and not _INSTALL_WORDS.isdisjoint(arguments[:6]):
        return "install-command"
    if name == "setup.py":
        return next((kind for kind, verbs in _SETUP_WORDS if not verbs.isdisjoint(arguments)), "command")
    if name in ("manage.py", "django-admin", "django"):
        known = {"test": "test-command", "runserver": "launch-command"}
        return next((known[each] for each in arguments if each in known), "command")
    if program in _TASK_RUNNERS:
        return _classify_task(program, arguments)
    if program == "twine" and arguments[:1] == ["check"]:
        return "lint-command"
    if (program == "flask" and "run" in arguments) or (program in ("docker-compose", "docker") and "up" in arguments):
        return "launch-command"
    if program in _KIND_OF_PROGRAM:
        return _KIND_OF_PROGRAM[program]
    return "test-command" if _TEST_SCRIPT.match(name) or _TEST_MODULE.match(path) else "command"


def _classify_task(program: str, arguments: list[str]) -> str:
    """A target of make, an environment of tox, a script of Hatch."""
    tasks = " ".join(each for each in arguments if not re.search(r"=|/|^-(?!e)", each))
    for kind, pattern in _TASK_WORDS:
        if pattern.search(tasks.lower()):
            return kind
    if program in ("tox", "nox"):
        return "test-command"
    return "build-command" if program in ("make", "gmake") and not tasks else "command"
