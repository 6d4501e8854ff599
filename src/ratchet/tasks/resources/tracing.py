"""Which lines each test runs, by the `coverage` package. Programs that the tests start are not followed."""

import base64
import os
import sys
import zlib

LARGEST_PART = 60000


class Lines:
    """Measures from now on. `folder` is where `coverage` is installed, for this alone."""

    def __init__(self, folder, workspace):
        self.workspace = workspace
        os.environ["COVERAGE_CORE"] = "ctrace"  # the others do not tell tests apart on every Python
        sys.path.insert(0, folder)
        import coverage

        sys.path.remove(folder)
        del os.environ["COVERAGE_CORE"]
        self.numbers = {}
        aside = [workspace + "/" + name for name in (".venv/*", "venv/*", ".tox/*", "build/*", "*/site-packages/*")]
        self.coverage = coverage.Coverage(
            data_file=None, config_file=False, include=[workspace + "/*"], omit=aside, messages=False
        )
        self.coverage.start()

    def number(self, numbers):
        """Tests are told apart by these numbers."""
        self.numbers = numbers

    def enter(self, node_id):
        if node_id in self.numbers:
            self.coverage.switch_context(str(self.numbers[node_id]))

    def leave(self):
        self.coverage.switch_context("")

    def dump(self, send):
        """Each line with its tests as a bitmap (bit n of byte n // 8: test n), compressed, in base 64."""
        self.coverage.stop()
        data = self.coverage.get_data()
        for file in sorted(data.measured_files()):
            if not os.path.isfile(file):
                continue  # code that was made while running, with a name of its own choice
            path = os.path.relpath(file, self.workspace)
            part, size = [], 0
            for line, tests in sorted(data.contexts_by_lineno(file).items()):
                numbers = [int(test) for test in tests if test]
                if not numbers:
                    continue
                text = packed(numbers)
                part.append([line, text])
                size += len(text) + 16
                if size > LARGEST_PART:
                    send("lines", path=path, lines=part)
                    part, size = [], 0
            if part:
                send("lines", path=path, lines=part)


def packed(numbers):
    bits = bytearray(max(numbers) // 8 + 1)
    for number in numbers:
        bits[number // 8] |= 1 << number % 8
    return base64.b64encode(zlib.compress(bytes(bits), 6)).decode("ascii")
