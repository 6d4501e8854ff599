"""Small projects that the rules alone discard: each needs one step that only its own documents tell of."""

from __future__ import annotations

from pathlib import Path

MANIFEST = (
    '[project]\nname = "{name}"\nversion = "1.0"\ndependencies = ["idna"]\n'
    '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
    '[tool.setuptools]\npackages = ["{name}"]\n'
)

GENERATED = {
    "pyproject.toml": MANIFEST.format(name="lookup"),
    "README.md": "# lookup\n\nLooks letters up.\n\nThe tables are not kept under version control. Before the tests, "
    "generate them:\n\n    python tools/make_tables.py\n\nThen run `pytest`.\n",
    "tools/make_tables.py": "from pathlib import Path\n\ntarget = Path(__file__).parent.parent / 'lookup' / 'letter_tables.py'\n"
    "target.write_text('TABLE = ' + repr({chr(97 + n): n for n in range(26)}) + '\\n')\nprint('wrote', target)\n",
    "lookup/__init__.py": "import idna\n\n\ndef position(letter):\n    from lookup import letter_tables\n"
    "    return letter_tables.TABLE[letter]\n",
    "tests/test_lookup.py": "import string\n\nimport pytest\n\nimport lookup\n\n\n"
    "@pytest.mark.parametrize('letter', string.ascii_lowercase)\ndef test_position(letter):\n"
    "    assert lookup.position(letter) == ord(letter) - 97\n",
}

CONFIGURED = {
    "pyproject.toml": MANIFEST.format(name="greeter"),
    "README.md": "# greeter\n\nGreets in several languages.\n\n## Testing\n\nCopy the example configuration first, then "
    "run the tests:\n\n```sh\ncp greeter/settings.example.ini greeter/settings.ini\npytest\n```\n",
    ".gitignore": "settings.ini\n",
    "greeter/__init__.py": "import configparser\nfrom pathlib import Path\n\nimport idna\n\n\ndef greet(language):\n"
    "    parser = configparser.ConfigParser()\n    parser.read_string((Path(__file__).parent / 'settings.ini').read_text())\n"
    "    return parser['greetings'][language]\n",
    "greeter/settings.example.ini": "[greetings]\nen = hello\nde = hallo\nfr = bonjour\nes = hola\n",
    "tests/test_greeter.py": "import pytest\n\nfrom greeter import greet\n\n\n"
    "@pytest.mark.parametrize('language', ['en', 'de', 'fr', 'es'])\ndef test_greet(language):\n"
    "    assert greet(language)\n",
}

UNPACKED = {
    "pyproject.toml": MANIFEST.format(name="corpus"),
    "README.md": "# corpus\n\nCounts words.\n",
    "Makefile": "# make samples has to be run once before make test\nsamples:\n\tmkdir -p samples\n\tfor n in 1 2 3 4 5; do "
    'echo "one two three" > samples/$$n.txt; done\n\ntest:\n\tpytest\n\n.PHONY: samples test\n',
    "corpus/__init__.py": "import idna\n\n\ndef words(path):\n    return len(path.read_text().split())\n",
    "tests/test_corpus.py": "from pathlib import Path\n\nimport pytest\n\nimport corpus\n\n"
    "SAMPLES = Path(__file__).parent.parent / 'samples'\n\n\n@pytest.mark.parametrize('number', range(1, 6))\n"
    "def test_words(number):\n    assert corpus.words(SAMPLES / f'{number}.txt') == 3\n",
}


def write(files: dict[str, str], at: Path) -> Path:
    for path, content in files.items():
        (at / path).parent.mkdir(parents=True, exist_ok=True)
        (at / path).write_text(content)
    return at
