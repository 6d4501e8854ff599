"""What tests and package import, and which of it no manifest declares."""

from __future__ import annotations

import re
import sys
from pathlib import PurePosixPath

from ratchet.survey.findings import Findings
from ratchet.survey.formats import names
from ratchet.survey.import_names import fold, provided_by
from ratchet.survey.python_sources import NAMESPACES, Import, Naming, summarise
from ratchet.survey.requirements import distribution
from ratchet.survey.tree import Tree

# Python 2 and other names that the interpreter running this does not list.
_ALSO_STANDARD = names(
    """
    UserDict UserList UserString sets exceptions copy_reg anydbm dbhash whichdb dumbdbm gdbm rfc822 mimetools md5 sha
    new popen2 robotparser SimpleHTTPServer SimpleXMLRPCServer DocXMLRPCServer CGIHTTPServer cookielib htmlentitydefs
    htmllib sgmllib tkMessageBox __pypy__ java js pyodide micropython
    distutils imp asyncore asynchat smtpd lib2to3 cgi cgitb crypt telnetlib nntplib pipes uu xdrlib msilib
    audioop aifc chunk imghdr mailcap nis ossaudiodev sndhdr spwd sunau binhex formatter parser symbol
    _bootlocale __builtin__ ConfigParser Queue StringIO cStringIO httplib urllib2 urlparse cPickle thread
    HTMLParser Cookie BaseHTTPServer SocketServer xmlrpclib Tkinter commands dummy_threading
    _dummy_threading macpath tomllib compression annotationlib _testcapi _testinternalcapi test __main__
    __future__ _typeshed winreg _winreg _winapi msvcrt nt winsound _overlapped concurrent zoneinfo graphlib
    """
)

_DECLARING = ("requirement", "extra-requirement", "group-requirement", "build-requirement", "direct-requirement")
_TOP_LEVEL_IMPORT = re.compile(r"^(?:from\s+([A-Za-z_]\w*)|import\s+([^#\n]+))", re.MULTILINE)


class ImportCheck:
    """Notes each imported module once for each group, at the first place that imports it."""

    def __init__(self, tree: Tree, found: Findings) -> None:
        self._tree = tree
        self._found = found
        self._seen: set[tuple[str, str]] = set()
        self._packages = tuple(fact.file for fact in found.of("import-name"))
        self._own = found.values("import-name")
        self._extensions = {value.split(".")[0] for value in found.values("extension-module")}
        declared = {distribution(re.sub(r".*#egg=", "", value)) for value in found.values(*_DECLARING)}
        self._declared = frozenset(provided for name in declared if name for provided in provided_by(name))

    def note_test_file(self, path: str, imports: tuple[Import, ...], *, collected: bool) -> None:
        """`collected`: a test runner imports the file by itself, so that a missing module is an error."""
        for each in imports:
            optional = each.optional or each.nested or not collected
            group = "test-optional" if optional else "test"
            if each.typing or self._is_known(path, each.name, group, nearby=True):
                continue
            self._seen.add((group, each.name))
            self._found.add("test-import", each.name, path, each.line, "optional" if optional else "")
            if not self._is_declared(each.name):
                self._found.add("undeclared-import", each.name, path, each.line, group)

    def note_package_file(self, path: str, text: str) -> None:
        """Only imports that happen whenever the module is imported count. The text is looked through first: most
        files import nothing new, and parsing is what takes the time."""
        if not any(path == top or path.startswith(top + "/") for top in self._packages):
            return
        lines = [match[1] or match[2] for match in _TOP_LEVEL_IMPORT.finditer(text)]
        tops = {re.split(r"[.\s(\\]", each.strip())[0] for line in lines for each in line.split(",")}
        if not any(self._is_news(path, name) for name in tops):
            return
        source = summarise(text, Naming())
        for each in source.imports:
            if each.typing or each.optional or each.nested or self._is_known(path, each.name, "package", nearby=False):
                continue
            self._seen.add(("package", each.name))
            if not self._is_declared(each.name):
                self._found.add("undeclared-import", each.name, path, each.line, "package")

    def _is_news(self, path: str, name: str) -> bool:
        return name in NAMESPACES or not (
            self._is_known(path, name, "package", nearby=False) or self._is_declared(name)
        )

    def _is_known(self, path: str, name: str, group: str, *, nearby: bool) -> bool:
        top = name.split(".")[0]
        if (
            (group, name) in self._seen
            or name.startswith("_")
            or top in sys.stdlib_module_names
            or top in _ALSO_STANDARD
        ):
            return True
        return name in self._own or self.is_local(path, top, nearby=nearby)

    def _is_declared(self, name: str) -> bool:
        if fold(name) in self._declared or fold(name.split(".")[0]) in self._declared or name in self._extensions:
            return True
        return any(each == name or each.startswith(name + ".") or name.startswith(each + ".") for each in self._own)

    def is_local(self, path: str, name: str, *, nearby: bool) -> bool:
        """Whether the checkout itself provides a top-level name: at its top or in src/, and for tests also in any
        folder between the file and the top, from where test runners import."""
        tree = self._tree
        folders = ["", "src/", "lib/", "python/"]
        if nearby:
            folders += [f"{parent}/" for parent in PurePosixPath(path).parents if str(parent) != "."]
            folders += ["tests/", "test/", "tests/lib/", "tests/helpers/"]
        return any(f"{folder}{name}.py" in tree or f"{folder}{name}" in tree.code_directories for folder in folders)
