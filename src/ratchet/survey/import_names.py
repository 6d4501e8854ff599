"""Which import names a distribution provides, when they are not simply its own name.

Only what cannot be guessed is listed. The mapping is used to tell whether an import is declared; a name that is
missing here makes a fact too many, never one too few.
"""

from __future__ import annotations

import re

from packaging.utils import canonicalize_name

_PROVIDES = {
    "attrs": "attr attrs", "pyyaml": "yaml", "pillow": "PIL", "beautifulsoup4": "bs4", "python-dateutil": "dateutil",
    "scikit-learn": "sklearn", "scikit-image": "skimage", "opencv-python": "cv2", "opencv-python-headless": "cv2",
    "pyjwt": "jwt", "python-dotenv": "dotenv", "pyopenssl": "OpenSSL", "pycryptodome": "Crypto",
    "pycryptodomex": "Cryptodome", "psycopg2-binary": "psycopg2", "mysqlclient": "MySQLdb", "pymysql": "pymysql",
    "protobuf": "google.protobuf google", "grpcio": "grpc", "grpcio-tools": "grpc_tools", "msgpack-python": "msgpack",
    "setuptools": "setuptools pkg_resources _distutils_hack", "pyserial": "serial", "pyusb": "usb", "gitpython": "git",
    "dnspython": "dns", "python-jose": "jose", "python-multipart": "multipart python_multipart", "pytest": "pytest _pytest",
    "markdown": "markdown", "pygithub": "github", "pyzmq": "zmq", "pywin32": "win32api win32con win32file pywintypes",
    "websocket-client": "websocket", "ipython": "IPython", "jupyter-core": "jupyter_core", "faiss-cpu": "faiss",
    "django-debug-toolbar": "debug_toolbar", "djangorestframework": "rest_framework", "django-filter": "django_filters",
    "django-cors-headers": "corsheaders", "django-environ": "environ", "factory-boy": "factory", "pytz-deprecation-shim":
    "pytz_deprecation_shim", "zope-interface": "zope.interface", "typing-extensions": "typing_extensions", "prompt-toolkit":
    "prompt_toolkit", "more-itertools": "more_itertools", "nose": "nose", "wsgi-intercept": "wsgi_intercept", "webtest":
    "webtest", "pyasn1-modules": "pyasn1_modules", "google-auth": "google.auth", "google-cloud-storage": "google.cloud",
    "python-magic": "magic", "python-slugify": "slugify", "python-levenshtein": "Levenshtein", "levenshtein": "Levenshtein",
    "pycurl": "pycurl", "pyparsing": "pyparsing", "async-timeout": "async_timeout", "aiohttp-cors": "aiohttp_cors",
    "tree-sitter": "tree_sitter", "biopython": "Bio", "pynacl": "nacl", "pysocks": "socks", "pyside6": "PySide6",
    "pyqt5": "PyQt5", "pyqt6": "PyQt6", "tables": "tables", "netcdf4": "netCDF4", "cython": "Cython cython pyximport",
    "sphinx": "sphinx", "docutils": "docutils", "jinja2": "jinja2", "markupsafe": "markupsafe", "flask-sqlalchemy":
    "flask_sqlalchemy", "sqlalchemy": "sqlalchemy", "pymongo": "pymongo bson gridfs", "couchbase": "couchbase", "redis":
    "redis", "kafka-python": "kafka", "elasticsearch": "elasticsearch", "pika": "pika", "ldap3": "ldap3", "python-ldap":
    "ldap", "pyscard": "smartcard", "pexpect": "pexpect", "ruamel-yaml": "ruamel.yaml ruamel", "pdfminer-six": "pdfminer",
    "pypdf2": "PyPDF2", "python-docx": "docx", "python-pptx": "pptx", "xlsxwriter": "xlsxwriter", "pyfakefs": "pyfakefs",
    "memory-profiler": "memory_profiler", "line-profiler": "line_profiler", "pytest-httpbin": "pytest_httpbin",
    "brotlipy": "brotli", "brotli": "brotli", "brotlicffi": "brotlicffi", "zstandard": "zstandard", "lz4": "lz4",
    "python-snappy": "snappy", "speechrecognition": "speech_recognition", "umap-learn": "umap", "pytorch": "torch",
    "tensorflow": "tensorflow", "tensorflow-cpu": "tensorflow", "torch": "torch", "antlr4-python3-runtime": "antlr4",
    "pyobjc": "objc", "pycairo": "cairo", "pygobject": "gi", "wxpython": "wx", "sphinx-rtd-theme": "sphinx_rtd_theme",
    "hatchling": "hatchling", "flit-core": "flit_core", "poetry-core": "poetry.core poetry", "pdm-backend": "pdm.backend pdm",
    "meson-python": "mesonpy", "scikit-build-core": "scikit_build_core", "scikit-build": "skbuild", "build": "build",
    "trio": "trio", "twisted": "twisted", "python-mimeparse": "mimeparse", "testtools": "testtools", "python-subunit":
    "subunit", "oslotest": "oslotest", "mox3": "mox3", "paste": "paste", "pastedeploy": "paste.deploy", "webob": "webob",
    "ephem": "ephem", "jpype1": "jpype", "sortedcontainers": "sortedcontainers", "nvidia-ml-py": "pynvml", "absl-py": "absl",
    "mecab-python3": "MeCab", "pyicu": "icu", "pylzma": "pylzma", "rpds-py": "rpds", "pyahocorasick": "ahocorasick",
    "charset-normalizer": "charset_normalizer", "importlib-metadata": "importlib_metadata", "pathlib2": "pathlib2",
    "coverage": "coverage", "cffi": "cffi _cffi_backend", "pluggy": "pluggy", "pytest-cov": "pytest_cov", "toml": "toml",
    "pyhamcrest": "hamcrest", "asynctest": "asynctest", "webcolors": "webcolors", "jsonpointer": "jsonpointer",
    "case": "case", "vine": "vine", "billiard": "billiard _billiard", "pyro4": "Pyro4", "ibm-db": "ibm_db",
    "stomp-py": "stomp", "paho-mqtt": "paho", "pyinotify": "pyinotify", "i18naddress": "i18naddress", "email-validator":
    "email_validator", "argon2-cffi": "argon2", "py": "py", "py-cpuinfo": "cpuinfo", "genshi": "genshi", "html5lib": "html5lib",
}  # fmt: skip


def provided_by(distribution: str) -> frozenset[str]:
    """The import names that a distribution may provide, folded as `fold` does: those known, and those that its
    name suggests."""
    name = canonicalize_name(distribution)
    names = set(_PROVIDES.get(name, "").split())
    plain = name.replace("-", "_")
    names |= {
        plain,
        name.replace("-", "."),
        plain.split("_")[0] if plain.startswith(("oslo", "zope", "google")) else plain,
    }
    for prefix in ("python_", "py_", "py", "types_", "django_", "backports_"):
        names.add(plain.removeprefix(prefix))
    for suffix in ("_python", "_py", "py", "python", "_cffi", "_binary", "3", "2"):
        names.add(plain.removesuffix(suffix))
    return frozenset(fold(each) for each in names if each)


def fold(name: str) -> str:
    """Import names compared without case and with one separator."""
    return re.sub(r"[-_.]+", ".", name).lower()
