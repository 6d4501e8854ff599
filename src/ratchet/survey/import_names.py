"""Which import names a distribution provides, when they are not simply its own name.

Only what cannot be guessed is listed. The mapping is used to tell whether an import is declared; a name that is
missing here makes a fact too many, never one too few.
"""

from __future__ import annotations

import re

from packaging.utils import canonicalize_name

_PROVIDES = {
    "attrs": "attr attrs", "pyyaml": "yaml", "toolz": "toolz tlz", "pillow": "PIL", "beautifulsoup4": "bs4",
    "python-dateutil": "dateutil", "scikit-learn": "sklearn", "scikit-image": "skimage", "opencv-python": "cv2",
    "opencv-python-headless": "cv2", "pyjwt": "jwt", "python-dotenv": "dotenv", "pyopenssl": "OpenSSL",
    "pycryptodome": "Crypto", "pycryptodomex": "Cryptodome", "psycopg2-binary": "psycopg2",
    "mysqlclient": "MySQLdb", "protobuf": "google.protobuf google", "grpcio": "grpc", "grpcio-tools": "grpc_tools",
    "msgpack-python": "msgpack", "setuptools": "setuptools pkg_resources _distutils_hack", "pyserial": "serial",
    "pyusb": "usb", "gitpython": "git", "dnspython": "dns", "python-jose": "jose",
    "python-multipart": "multipart python_multipart", "pytest": "pytest _pytest", "pygithub": "github",
    "pyzmq": "zmq", "pywin32": "win32api win32con win32file pywintypes", "websocket-client": "websocket",
    "faiss-cpu": "faiss", "django-debug-toolbar": "debug_toolbar", "djangorestframework": "rest_framework",
    "django-filter": "django_filters", "django-cors-headers": "corsheaders", "django-environ": "environ",
    "factory-boy": "factory", "zope-interface": "zope.interface", "google-auth": "google.auth",
    "google-cloud-storage": "google.cloud", "python-magic": "magic", "python-slugify": "slugify",
    "python-levenshtein": "Levenshtein", "biopython": "Bio", "pynacl": "nacl", "pysocks": "socks",
    "cython": "Cython cython pyximport", "pymongo": "pymongo bson gridfs", "kafka-python": "kafka",
    "python-ldap": "ldap", "pyscard": "smartcard", "ruamel-yaml": "ruamel.yaml ruamel", "pdfminer-six": "pdfminer",
    "python-docx": "docx", "python-pptx": "pptx", "brotlipy": "brotli", "python-snappy": "snappy",
    "speechrecognition": "speech_recognition", "umap-learn": "umap", "pytorch": "torch",
    "tensorflow-cpu": "tensorflow", "antlr4-python3-runtime": "antlr4", "pyobjc": "objc", "pycairo": "cairo",
    "pygobject": "gi", "wxpython": "wx", "poetry-core": "poetry.core poetry", "pdm-backend": "pdm.backend pdm",
    "meson-python": "mesonpy", "scikit-build": "skbuild", "python-mimeparse": "mimeparse",
    "python-subunit": "subunit", "pastedeploy": "paste.deploy", "jpype1": "jpype", "nvidia-ml-py": "pynvml",
    "absl-py": "absl", "mecab-python3": "MeCab", "pyicu": "icu", "rpds-py": "rpds", "pyahocorasick": "ahocorasick",
    "cffi": "cffi _cffi_backend", "pyhamcrest": "hamcrest", "billiard": "billiard _billiard", "stomp-py": "stomp",
    "paho-mqtt": "paho", "argon2-cffi": "argon2", "py-cpuinfo": "cpuinfo",
}  # fmt: skip


def provided_by(distribution: str) -> frozenset[str]:
    """The import names that a distribution may provide, folded as `fold` does: those known, and those that its
    name suggests."""
    name = canonicalize_name(distribution)
    names = set(_PROVIDES.get(name, "").split())
    plain = name.replace("-", "_")
    # "arro3-core" shares "arro3"; "flask-login" needs, and so brings, "flask".
    names |= {plain, name.replace("-", "."), plain.split("_")[0]}
    for prefix in ("python_", "py_", "py", "types_", "django_", "backports_"):
        names.add(plain.removeprefix(prefix))
    for suffix in ("_python", "_py", "py", "python", "_cffi", "_binary", "3", "2"):
        names.add(plain.removesuffix(suffix))
    return frozenset(fold(each) for each in names if each)


def fold(name: str) -> str:
    """Import names compared without case and with one separator."""
    return re.sub(r"[-_.]+", ".", name).lower()
