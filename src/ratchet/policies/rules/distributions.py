"""From an import name to the distribution that provides it.

Most distributions are named like the module they provide; the tables here hold the well-known differences. Where a
project declares a requirement that provides the module, that requirement wins: `declared_requirement`.
"""

from __future__ import annotations

from types import MappingProxyType

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ratchet.records import Survey

# One line per distribution: "requirement: modules". A requirement may carry the bound without which the module is gone.
_TABLE = """
absl-py: absl
adafruit-blinka: board busio digitalio
aliyun-python-sdk-core: aliyunsdkcore
antlr4-python3-runtime: antlr4
apache-airflow: airflow
apache-flink: pyflink
argon2-cffi: argon2
attrs: attr attrs
audioop-lts: audioop
azure-common: azure.common
azure-core: azure azure.core
azure-cosmos: azure.cosmos
azure-identity: azure.identity
azure-keyvault-secrets: azure.keyvault azure.keyvault.secrets
azure-servicebus: azure.servicebus
azure-storage-blob: azure.storage azure.storage.blob
backports.functools-lru-cache: backports.functools_lru_cache
backports.ssl-match-hostname: backports.ssl_match_hostname
backports.tarfile: backports.tarfile
backports.zoneinfo: backports.zoneinfo
basemap: mpl_toolkits.basemap
beautifulsoup4: bs4
biopython: Bio BioSQL
Brotli: brotli _brotli
cattrs: cattr cattrs
cffi: cffi _cffi_backend
cyclonedx-python-lib: cyclonedx
Cython: Cython cython pyximport
databricks-sdk: databricks.sdk
dbus-python: dbus _dbus_bindings
delegator.py: delegator
discord.py: discord
django-allauth: allauth
django-appconf: appconf
django-braces: braces
django-cors-headers: corsheaders
django-crispy-forms: crispy_forms
django-debug-toolbar: debug_toolbar
django-environ: environ
django-filter: django_filters
django-guardian: guardian
django-haystack: haystack
django-import-export: import_export
django-model-utils: model_utils
django-mptt: mptt
django-ninja: ninja
django-oauth-toolkit: oauth2_provider
django-reversion: reversion
django-storages: storages
django-taggit: taggit
django-treebeard: treebeard
djangorestframework-simplejwt: rest_framework_simplejwt
djangorestframework: rest_framework
dnspython: dns
docker-compose: compose
factory-boy: factory
faiss-cpu: faiss
ffmpeg-python: ffmpeg
Flask-Babel: flask_babel flask_babelex
fpdf2: fpdf
fusepy: fuse
future: future builtins past libfuturize libpasteurize
GDAL: osgeo gdal ogr osr
GitPython: git
google-api-core: google.api_core google.api
google-api-python-client: googleapiclient apiclient
google-auth: google.auth google.oauth2
google-cloud-bigquery: google.cloud.bigquery
google-cloud-core: google.cloud
google-cloud-datastore: google.cloud.datastore
google-cloud-firestore: google.cloud.firestore
google-cloud-logging: google.cloud.logging
google-cloud-pubsub: google.cloud.pubsub google.cloud.pubsub_v1
google-cloud-secret-manager: google.cloud.secretmanager
google-cloud-storage: google.cloud.storage
google-genai: google.genai
google-generativeai: google.generativeai
googleapis-common-protos: google.rpc google.type google.longrunning
grpcio-health-checking: grpc_health
grpcio-reflection: grpc_reflection
grpcio-status: grpc_status
grpcio-testing: grpc_testing
grpcio-tools: grpc_tools
grpcio: grpc
hydra-core: hydra
imbalanced-learn: imblearn
jaraco.classes: jaraco.classes
jaraco.collections: jaraco.collections
jaraco.context: jaraco.context
jaraco.functools: jaraco.functools
jaraco.text: jaraco.text
kafka-python: kafka
legacy-cgi: cgi cgitb
libsass: sass sassutils
linkify-it-py: linkify_it
logilab-common: logilab logilab.common
markdown-it-py: markdown_it
matplotlib: matplotlib mpl_toolkits pylab
matrix-nio: nio
meson-python: mesonpy
mysql-connector-python: mysql mysql.connector
mysqlclient: MySQLdb _mysql
nvidia-ml-py: pynvml
odfpy: odf
opencv-python-headless: cv2
opentelemetry-api: opentelemetry opentelemetry.trace opentelemetry.metrics
opentelemetry-exporter-otlp: opentelemetry.exporter.otlp
opentelemetry-sdk: opentelemetry.sdk
PasteDeploy: paste.deploy
pdfminer.six: pdfminer
pdm-backend: pdm.backend
pdm-pep517: pdm.pep517
peewee: peewee playhouse
phonenumberslite: phonenumbers
Pillow: PIL
poetry-core: poetry poetry.core
protobuf: google google.protobuf
psycopg2-binary: psycopg2
psycopg[binary]: psycopg
py-cpuinfo: cpuinfo
py: py py.path py.test
pyasynchat: asynchat
pyasyncore: asyncore
pycairo: cairo
pycodestyle: pycodestyle pep8
pycryptodome: Crypto
pycryptodomex: Cryptodome
pycurl: pycurl curl
PyDispatcher: pydispatch
pyelftools: elftools
pyenchant: enchant
pyerfa: erfa
PyGObject: gi
PyHamcrest: hamcrest
pyjwkest: jwkest
PyJWT: jwt
pymdown-extensions: pymdownx
pymongo: pymongo bson gridfs
PyMuPDF: fitz pymupdf
PyNaCl: nacl
pynose: nose
PyOpenGL: OpenGL
pyOpenSSL: OpenSSL
pypng: png
pyproject-hooks: pyproject_hooks pep517
PyQt5-sip: PyQt5.sip
PyQtWebEngine: PyQt5.QtWebEngineWidgets
pyscard: smartcard
pyserial: serial
pyshp: shapefile
PySide2: PySide2 shiboken2
PySide6: PySide6 shiboken6
PySocks: socks sockshandler
pytest-xdist: xdist
pytest: pytest _pytest
python-barcode: barcode
python-bidi: bidi
python-box: box
python-can: can
python-constraint: constraint
python-crontab: crontab
python-daemon: daemon
python-dateutil: dateutil
python-debian: debian debian_bundle deb822
python-decouple: decouple
python-docx: docx
python-dotenv: dotenv
python-editor: editor
python-engineio: engineio
python-gitlab: gitlab
python-gnupg: gnupg
python-hcl2: hcl2
python-i18n: i18n
python-iso639: iso639
python-jenkins: jenkins
python-jose: jose
python-json-logger: pythonjsonlogger
python-keycloak: keycloak
python-ldap: ldap ldif _ldap ldapurl
python-lsp-jsonrpc: pylsp_jsonrpc
python-lsp-server: pylsp
python-magic: magic
python-memcached: memcache
python-mimeparse: mimeparse
python-multipart: multipart python_multipart
python-nmap: nmap
python-novaclient: novaclient
python-pam: pam
python-pptx: pptx
python-rapidjson: rapidjson
python-slugify: slugify
python-snappy: snappy
python-socketio: socketio
python-stdnum: stdnum
python-telegram-bot: telegram
python-ulid: ulid
python-vlc: vlc
python-whois: whois
python-xlib: Xlib
python3-openid: openid
python3-saml: onelogin
pyusb: usb
pywavelets: pywt
pywinrm: winrm
pyxdg: xdg
PyYAML: yaml _yaml
pyzmq: zmq
repoze.lru: repoze repoze.lru
repoze.who: repoze.who
robotframework: robot
ruamel.std.pathlib: ruamel.std
ruamel.yaml: ruamel ruamel.yaml
scikit-build: skbuild
scikit-image: skimage
scikit-learn: sklearn
scikit-optimize: skopt
setuptools: setuptools distutils _distutils_hack
setuptools<81: pkg_resources
sgmllib3k: sgmllib
slack-sdk: slack slack_sdk
snowflake-connector-python: snowflake snowflake.connector
snowflake-sqlalchemy: snowflake.sqlalchemy
speaklater3: speaklater
SpeechRecognition: speech_recognition
sphinxcontrib-httpdomain: sphinxcontrib.httpdomain
sphinxcontrib-napoleon: sphinxcontrib.napoleon
sphinxcontrib-programoutput: sphinxcontrib.programoutput
sphinxcontrib-websupport: sphinxcontrib.websupport
standard-aifc: aifc
standard-chunk: chunk
standard-crypt: crypt
standard-imghdr: imghdr
standard-mailcap: mailcap
standard-nntplib: nntplib
standard-pipes: pipes
standard-smtpd: smtpd
standard-sndhdr: sndhdr
standard-sunau: sunau
standard-telnetlib: telnetlib
standard-uu: uu
standard-xdrlib: xdrlib
stomp.py: stomp
suds-community: suds
systemd-python: systemd
torch: torch functorch
umap-learn: umap
unittest-xml-reporting: xmlrunner
uWSGI: uwsgi uwsgidecorators
websocket-client: websocket
wxPython: wx
zc.lockfile: zc.lockfile
zeroc-ice: Ice
zombie-imp: imp
zope.component: zope.component
zope.event: zope.event
zope.interface: zope zope.interface
zope.schema: zope.schema
zope.testing: zope.testing
zope.testrunner: zope.testrunner
""".strip()

# Modules for which there is another distribution that projects mean as often: a declared one of these wins.
_ALTERNATIVES = """
cv2: opencv-python opencv-contrib-python opencv-contrib-python-headless
psycopg2: psycopg2 psycopg2cffi
psycopg: psycopg psycopg-binary
Crypto: pycrypto pycryptodome
nose: nose
docopt: docopt docopt-ng
magic: file-magic
slugify: unicode-slugify slugify
pymysql: PyMySQL
Levenshtein: python-Levenshtein
igraph: python-igraph
jwt: jwt
serial: pyserial
fuse: fuse-python refuse
dns: dnspython
suds: suds-jurko suds suds-py3
markdown: Markdown
path: path.py
phonenumbers: phonenumbers
cairo: cairocffi pycairo
faiss: faiss faiss-gpu
tensorflow: tensorflow-cpu tensorflow-gpu tf-nightly
crontab: crontab
memcache: python3-memcached
editor: editor
pkg_resources: setuptools
imp: zombie-imp
ldap: python-ldap
zmq: pyzmq
attr: attrs
gym: gym gymnasium
"""


def _parse(table: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in table.splitlines():
        requirement, _, modules = line.partition(":")
        for module in modules.split():
            found.setdefault(module, requirement.strip())
    return found


DISTRIBUTIONS = MappingProxyType(_parse(_TABLE))
"""Import name (top-level or dotted) to requirement."""

_NAMED_BY_MODULE = MappingProxyType(
    {
        module: tuple(canonicalize_name(name) for name in names.split())
        for module, _, names in (line.partition(":") for line in _ALTERNATIVES.strip().splitlines())
    }
)

# Packages whose parts come from different distributions: the dotted name decides.
NAMESPACES = frozenset(
    [
        "google",
        "google.cloud",
        "azure",
        "azure.storage",
        "azure.keyvault",
        "backports",
        "jaraco",
        "ruamel",
        "sphinxcontrib",
        "zope",
        "zc",
        "repoze",
        "flaskext",
        "paste",
        "opentelemetry",
        "opentelemetry.exporter",
        "databricks",
        "snowflake",
        "logilab",
        "pdm",
        "poetry",
        "oslo",
        "collective",
        "plone",
    ]
)


def requirement_for(module: str) -> str:
    """The requirement that most likely provides a module, by its dotted import name."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        found = DISTRIBUTIONS.get(".".join(parts[:length]))
        if found is not None and (length > 1 or ".".join(parts[:1]) not in NAMESPACES or len(parts) == 1):
            return found
    depth = max((n for n in range(1, len(parts)) if ".".join(parts[:n]) in NAMESPACES), default=0)
    if depth:  # an unknown part of a namespace is named like its path
        return "-".join(parts[: depth + 1]).replace("_", "-")
    return parts[0].replace("_", "-").strip("-")


def provides(distribution: str, module: str) -> bool:
    """Whether a distribution provides a module, as far as the names say."""
    name = canonicalize_name(distribution)
    top = module.partition(".")[0]
    if name in _NAMED_BY_MODULE.get(top, ()):
        return True
    if name == _name(requirement_for(module)):
        return True
    if module in DISTRIBUTIONS or top in NAMESPACES:
        return False
    plain = canonicalize_name(top).strip("-")
    return name in {plain, f"python-{plain}", f"py{plain}", f"{plain}-python", f"python3-{plain}", f"{plain}-py"}


def declared_requirement(survey: Survey, module: str) -> str | None:
    """The project's own requirement that provides a module, with its bounds, or None. Direct URLs are no answer."""
    for kind in ("requirement", "group-requirement", "extra-requirement", "build-requirement", "constraint"):
        for text in survey.values(kind):
            if (name := _name(text)) and provides(name, module):
                return text
    return None


def _name(requirement: str) -> str:
    try:
        return canonicalize_name(Requirement(requirement).name)
    except InvalidRequirement:
        return ""
