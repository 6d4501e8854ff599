"""Generation 0 as the goal setter: what can be asked of a Python project, read off the survey.

`propose_goals` returns more candidates than are needed, the most telling first; stage 1 keeps ten of them.
Every command runs offline as the ordinary user, in /workspace, with the environment's variables.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from ratchet.policies.rules.project import installable, needed_distributions
from ratchet.policies.rules.python_tests import REPORT, Suite, file_command, find_suite, largest_files
from ratchet.records import Checkout, Expectation, Goal, GoalKind, Survey

# A suite may take this long; a build or a single file of tests less.
SUITE_TIMEOUT_S = 1800.0
BUILD_TIMEOUT_S = 900.0

# At least this share of the test functions that the files contain must have run: of the whole suite, and of a single
# file, where it is more usual that most tests are for another platform or version.
_LEAST_SHARE_RUN = 0.5
_LEAST_SHARE_OF_FILE = 0.2


def propose_goals(survey: Survey, checkout: Checkout) -> list[Goal]:
    """Candidates for the goals of a checkout, in order of what they prove. Empty where it has no tests."""
    suite = find_suite(survey)
    if suite is None:
        return []
    candidates = [
        _whole_suite(suite),
        *_compiled_modules(survey),
        *_imports(survey),
        *_distribution(survey, checkout),
        *_wheel(survey),
        *_single_files(suite),
        *_collection(suite),
        *_programs(survey),
        *_modules(survey),
        *_consistency(),
        *_runtime_requirements(survey),
        *_source_compiles(survey),
        *_interpreter(),
        *_metadata(survey),
        *_place(survey),
        *_standard_library(),
        *_tests_compile(suite),
        *_listing(survey),
    ]
    return list({goal.command: goal for goal in candidates}.values())


def _python(code: str, survey: Survey | None = None) -> str:
    """A command that runs `code`: from outside the checkout, so that only what is installed can be imported, unless
    `survey` says that the project is not made to be installed."""
    plain = not any(character in code for character in '"$`\\')
    outside = "" if survey is not None and not installable(survey) else "cd / && "
    return f"{outside}python -c " + (f'"{code}"' if plain else shlex.quote(code))


def _is_module(name: str) -> bool:
    """Whether a name can be imported; it may be dotted, as the portions of namespace packages are."""
    return all(part.isidentifier() for part in name.split("."))


def _whole_suite(suite: Suite) -> Goal:
    least = max(1, int(suite.functions * _LEAST_SHARE_RUN))
    return Goal(
        suite.command,
        f"Runs the project's whole test suite ({len(suite.files)} files with {suite.functions} test functions): at "
        f"least {least} tests run and at least 95 % of them pass.",
        GoalKind.TESTS,
        Expectation(exit_status=None, report=REPORT, min_tests=least, min_pass_rate=0.95),
        timeout_s=SUITE_TIMEOUT_S,
    )


def _single_files(suite: Suite) -> Iterator[Goal]:
    for fact in largest_files(suite, 3):
        least = max(1, int(int(fact.value) * _LEAST_SHARE_OF_FILE))
        command = file_command(suite, fact.file)
        if command is None:
            continue
        yield Goal(
            command,
            f"Runs the tests in {fact.file} ({fact.value} test functions): at least {least} run, at least 95 % pass.",
            GoalKind.TESTS,
            Expectation(exit_status=None, report=REPORT, min_tests=least, min_pass_rate=0.95),
            timeout_s=SUITE_TIMEOUT_S,
        )


def _collection(suite: Suite) -> Iterator[Goal]:
    if suite.runner == "pytest":
        yield Goal(
            " ".join(["python -m pytest --collect-only -q", *map(shlex.quote, (*suite.options, *suite.paths))]),
            "Lists the tests without running them: no file fails to be collected, so the exit status is 0.",
            GoalKind.TESTS,
            Expectation(exit_status=0, excludes=(r"^ERROR\b", r"\berrors? during collection")),
            timeout_s=BUILD_TIMEOUT_S,
        )


def _metadata(survey: Survey) -> Iterator[Goal]:
    if name := survey.first("project-name"):
        code = (
            f"from importlib.metadata import distribution\nfound = distribution({name!r})\n"
            "print('metadata', found.metadata['Metadata-Version'], len(found.files or []), 'files')"
        )
        yield Goal(
            _python(code),
            f"Reads the metadata of the installed distribution {name}, which records the files that belong to it.",
            GoalKind.SETUP,
            Expectation(matches=(r"^metadata \d\.\d+ [1-9]\d* files$",)),
        )


def _place(survey: Survey) -> Iterator[Goal]:
    names = [n for n in survey.values("import-name") if _is_module(n)][:1]
    for name in names if installable(survey) else []:
        yield Goal(
            _python(f"import importlib.util; print('found', importlib.util.find_spec({name!r}).origin)"),
            f"Finds {name} in the checkout, so that an edit of a source file takes effect.",
            GoalKind.IMPORT,
            Expectation(matches=(r"^found /workspace/",)),
        )


def _imports(survey: Survey) -> Iterator[Goal]:
    names = [n for n in survey.values("import-name") if _is_module(n)][:8]
    if names:
        lines = "; ".join(f"import {name}; print('imported', {name}.__name__)" for name in names)
        yield Goal(
            _python(lines, survey),
            f"Imports what the project provides ({', '.join(names)}) from outside the checkout and says so for each.",
            GoalKind.IMPORT,
            Expectation(matches=tuple(rf"^imported {re.escape(name)}$" for name in names)),
        )


def _modules(survey: Survey) -> Iterator[Goal]:
    modules = [m for m in survey.values("module") if _is_module(m)][:400]
    if len(modules) < 2:
        return
    least = max(1, int(0.8 * len(modules)))
    code = (
        "import importlib\n"
        f"names = {' '.join(modules)!r}.split()\n"
        "done = 0\n"
        "for name in names:\n"
        "    try:\n"
        "        importlib.import_module(name)\n"
        "        done += 1\n"
        "    except BaseException as error:\n"
        "        print('not imported:', name, type(error).__name__, str(error)[:200])\n"
        f"print('imported', done, 'of', len(names))\n"
        f"raise SystemExit(done < {least})"
    )
    yield Goal(
        _python(code, survey),
        f"Imports each of the project's {len(modules)} modules by itself: at least {least} of them can be.",
        GoalKind.IMPORT,
        Expectation(matches=(rf"^imported \d+ of {len(modules)}$",)),
    )


def _compiled_modules(survey: Survey) -> Iterator[Goal]:
    names = [n for n in survey.values("extension-module") if _is_module(n)][:12]
    if names:
        # A package that wraps a module of the same name (maturin makes such ones) is compiled as well: what counts is
        # that a shared library is loaded under the name.
        least = (len(names) + 1) // 2  # extension modules are often optional: built where a library is there
        code = (
            "import importlib, sys\n"
            "done = 0\n"
            f"for name in {names!r}:\n"
            "    try:\n"
            "        importlib.import_module(name)\n"
            "    except ImportError as error:\n"
            "        print('not imported:', error)\n"
            "        continue\n"
            "    loaded = [m for n, m in list(sys.modules.items()) if n == name or n.startswith(name + '.')]\n"
            "    files = [str(getattr(m, '__file__', '')) for m in loaded]\n"
            "    found = [f for f in files if f.endswith('.so')][:1]\n"
            "    done += len(found)\n"
            "    print('compiled', name, *found)\n"
            f"print('compiled', done, 'of', {len(names)})\n"
            f"raise SystemExit(done < {least})"
        )
        yield Goal(
            _python(code),
            f"Imports the compiled extension modules ({', '.join(names)}): at least {least} load a shared library.",
            GoalKind.IMPORT,
            Expectation(matches=(rf"^compiled \d+ of {len(names)}$",)),
        )


def _distribution(survey: Survey, checkout: Checkout) -> Iterator[Goal]:
    name = survey.first("project-name")
    if not name:
        return
    version = survey.first("project-version") or checkout.version
    known = f", which is {version}" if version else ""
    yield Goal(
        _python(f"from importlib.metadata import version; print('version', version({name!r}))"),
        f"Prints the version of the installed distribution {name}{known}.",
        GoalKind.SETUP,
        Expectation(matches=(r"^version \d+[\w.+!-]*$",)),
    )
    yield Goal(
        f"python -m pip show {shlex.quote(name)}",
        f"Shows the installed distribution: its name ({name}), version, location and requirements.",
        GoalKind.SETUP,
        Expectation(matches=(r"^Name: ", r"^Version: \d", r"^Location: /")),
    )


def _wheel(survey: Survey) -> Iterator[Goal]:
    if installable(survey):
        yield Goal(
            "python -m pip wheel --no-index --no-deps --no-build-isolation --wheel-dir /tmp/ratchet/wheels .",
            "Builds a wheel of the project from the checkout, with no network and only what is installed.",
            GoalKind.BUILD,
            Expectation(matches=(r"^(Successfully built|\s*Stored in directory|Saved )",)),
            timeout_s=BUILD_TIMEOUT_S,
        )


def _programs(survey: Survey) -> Iterator[Goal]:
    for script in survey.values("console-script")[:2]:
        program, _, target = script.partition("=")
        if program and target:
            yield Goal(
                f"{shlex.quote(program.strip())} --help",
                f"Starts the program {program.strip()}, which prints its usage and exits with 0.",
                GoalKind.LAUNCH,
                Expectation(matches=(r"(?i)usage|options|commands|help",)),
            )
    packages = [p for p in survey.values("main-module") if not re.search(r"(^|[._])tests?([._]|$)", p)]
    for package in packages[:1]:
        yield Goal(
            ("cd / && " if installable(survey) else "") + f"python -m {shlex.quote(package)} --help",
            f"Starts the package {package} as a program, which prints its usage and exits with 0.",
            GoalKind.LAUNCH,
            Expectation(matches=(r"(?i)usage|options|commands|help",)),
        )


def _consistency() -> Iterator[Goal]:
    yield Goal(
        "python -m pip check",
        "Finds no broken requirement among the installed distributions.",
        GoalKind.SETUP,
        Expectation(matches=(r"^No broken requirements found",)),
    )


def _runtime_requirements(survey: Survey) -> Iterator[Goal]:
    names = needed_distributions(survey)
    if names:
        code = f"from importlib.metadata import version\nfor name in {names!r}:\n    print('has', name, version(name))"
        yield Goal(
            _python(code),
            f"Prints the installed version of each distribution that the project needs: {', '.join(names)}.",
            GoalKind.SETUP,
            Expectation(matches=tuple(rf"^has {name} \d" for name in names)),
        )


def _standard_library() -> Iterator[Goal]:
    modules = "bz2 ctypes lzma sqlite3 ssl zlib"
    yield Goal(
        _python(f"import {modules.replace(' ', ', ')}; print('standard library: {modules}')"),
        "Imports the parts of the standard library that need system libraries.",
        GoalKind.SETUP,
        Expectation(matches=(r"^standard library: ",)),
    )


def _tests_compile(suite: Suite) -> Iterator[Goal]:
    files = [path for path, _ in suite.files][:200]
    yield Goal(
        " ".join(["python -m compileall -q -f", *map(shlex.quote, files)]),
        f"Compiles the {len(files)} files with tests to bytecode without an error, and prints nothing.",
        GoalKind.LINT,
        Expectation(excludes=(r"Error",)),
    )


def _listing(survey: Survey) -> Iterator[Goal]:
    if names := needed_distributions(survey)[:5]:
        yield Goal(
            "python -m pip list",
            f"Lists the installed distributions, {', '.join(names)} among them.",
            GoalKind.SETUP,
            Expectation(matches=tuple(rf"(?i)^{re.escape(name).replace('_', '[-_]')}\s" for name in names)),
        )


def _source_compiles(survey: Survey) -> Iterator[Goal]:
    names = [n for n in survey.values("import-name") if _is_module(n)][:8]
    if names:
        code = (
            "import compileall, importlib.util, os\n"
            f"for name in {names!r}:\n"
            "    spec = importlib.util.find_spec(name)\n"
            "    places = spec.submodule_search_locations or [spec.origin]\n"
            "    for place in places:\n"
            "        compile = compileall.compile_dir if os.path.isdir(place) else compileall.compile_file\n"
            "        ok = place.endswith('.so') or compile(place, quiet=1, force=True, optimize=1)\n"
            "        print('compiled', name, bool(ok))"
        )
        yield Goal(
            _python(code, survey),
            f"Compiles every source file of the installed packages ({', '.join(names)}) to bytecode without an error.",
            GoalKind.LINT,
            Expectation(
                matches=tuple(rf"^compiled {re.escape(name)} True$" for name in names),
                excludes=(r"^\*\*\*|SyntaxError",),
            ),
        )


def _interpreter() -> Iterator[Goal]:
    yield Goal(
        _python("import sys; print('isolated', sys.prefix != sys.base_prefix, sys.version.split()[0])"),
        "Shows that `python` is the interpreter of a virtual environment of its own.",
        GoalKind.SETUP,
        Expectation(matches=(r"^isolated True 3\.\d+",)),
    )
