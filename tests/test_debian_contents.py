"""Which package ships a file: the reduction and the ranking, and forty answers that everybody knows."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ratchet.errors import SandboxError
from ratchet.records import Base
from ratchet.sandbox.client_files import AptSource
from ratchet.sandbox.clients import ClientSettings, read_clients
from ratchet.sandbox.debian_contents import ContentsIndex
from ratchet.sandbox.root_archive import host_architecture

CONTENTS = """\
bin/which.debianutils                                   utils/debianutils
usr/include/botan-2/botan/internal/ffi.h                libdevel/libbotan-2-dev
usr/include/gdcm-3.0/gdcmjpeg/8/jpeglib.h               libdevel/libgdcm-dev
usr/include/jpeglib.h                                   libdevel/libjpeg62-turbo-dev
usr/include/libxml2/libxml/xmlversion.h                 libdevel/libxml2-dev
usr/include/with blank/odd.h                            libdevel/libodd-dev
usr/include/x86_64-linux-gnu/curl/curl.h                libdevel/libcurl4-gnutls-dev,libdevel/libcurl4-openssl-dev
usr/include/x86_64-linux-gnu/ffi.h                      libdevel/libffi-dev
usr/include/python3.11/Python.h                         libdevel/libpython3.11-dev
usr/arm-linux-gnueabihf/include/ffi.h                   devel/libffi-dev-armhf-cross
usr/lib/x86_64-linux-gnu/libxslt.so                     libdevel/libxslt1-dev
usr/lib/x86_64-linux-gnu/libxslt.so.1                   libs/libxslt1.1
usr/lib/x86_64-linux-gnu/pkgconfig/libffi.pc            libdevel/libffi-dev
usr/share/doc/libffi-dev/ffi.h                          libdevel/libffi-dev
usr/share/eigen3/cmake/Eigen3Config.cmake               libdevel/libeigen3-dev
usr/bin/pg_config                                       libdevel/libpq-dev,database/postgresql-common
usr/bin/xmllint                                         text/libxml2-utils
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A mirror with one suite: its URL, and the folder of its contents."""
    folder = tmp_path / "mirror" / "dists" / "bookworm" / "main"
    folder.mkdir(parents=True)
    (folder / "Contents-amd64.gz").write_bytes(gzip.compress(CONTENTS.encode()))
    handler = partial(Quiet, directory=str(tmp_path / "mirror"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", folder
        server.shutdown()


def index_of(url: str, home: Path, suite: str | None = "bookworm") -> ContentsIndex:
    clients = ClientSettings(apt=(AptSource(url, "bookworm", ("main",)),))
    return ContentsIndex(Base("layer", "name", suite, "amd64", "mmdebstrap bookworm"), home, clients)


def test_the_answers_of_a_small_index(mirror: tuple[str, Path], tmp_path: Path) -> None:
    index = index_of(mirror[0], tmp_path)
    assert index.header("ffi.h") == ("libffi-dev", "libbotan-2-dev")
    assert index.header("jpeglib.h")[0] == "libjpeg62-turbo-dev"
    assert index.header("libxml/xmlversion.h") == ("libxml2-dev",)
    assert index.header("curl/curl.h") == ("libcurl4-openssl-dev", "libcurl4-gnutls-dev")
    assert index.header("Python.h") == ("python3-dev",)
    assert index.header("odd.h") == ("libodd-dev",)
    assert index.library("xslt") == ("libxslt1-dev",)
    assert index.library("libxslt.so.1") == ("libxslt1.1",)
    assert index.pkg_config("libffi") == ("libffi-dev",)
    assert index.cmake_package("Eigen3") == ("libeigen3-dev",)
    assert index.program("pg_config") == ("libpq-dev", "postgresql-common")
    assert index.program("xmllint") == ("libxml2-utils",)


@pytest.mark.parametrize("name", ["", "/", "no-such.h", "xml/xmlversion.h", "../ffi.h", "a\0b", "'; DROP TABLE files"])
def test_odd_names_have_no_answer(mirror: tuple[str, Path], tmp_path: Path, name: str) -> None:
    index = index_of(mirror[0], tmp_path)
    assert index.header(name) == index.library(name) == index.program(name) == ()


def test_it_is_fetched_once(mirror: tuple[str, Path], tmp_path: Path) -> None:
    assert index_of(mirror[0], tmp_path).header("ffi.h")
    (mirror[1] / "Contents-amd64.gz").unlink()
    assert index_of(mirror[0], tmp_path).header("ffi.h")


def test_a_download_that_is_cut_off_is_an_error_and_leaves_no_index(mirror: tuple[str, Path], tmp_path: Path) -> None:
    file = mirror[1] / "Contents-amd64.gz"
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    with pytest.raises(SandboxError, match="cut off"):
        index_of(mirror[0], tmp_path).header("ffi.h")
    file.write_bytes(whole)
    assert index_of(mirror[0], tmp_path).header("ffi.h")


def test_a_base_of_no_suite_has_no_answers(tmp_path: Path) -> None:
    assert index_of("http://127.0.0.1:1", tmp_path, suite=None).header("ffi.h") == ()


KNOWN = {
    "header": """
        ffi.h libffi-dev
        libxml/xmlversion.h libxml2-dev
        libxslt/xslt.h libxslt1-dev
        jpeglib.h libjpeg62-turbo-dev
        zlib.h zlib1g-dev
        openssl/ssl.h libssl-dev
        libpq-fe.h libpq-dev
        sql.h unixodbc-dev
        ft2build.h libfreetype-dev
        lcms2.h liblcms2-dev
        webp/decode.h libwebp-dev
        tiffio.h libtiff-dev
        gmp.h libgmp-dev
        mpfr.h libmpfr-dev
        yaml.h libyaml-dev
        snappy-c.h libsnappy-dev
        lzma.h liblzma-dev
        bzlib.h libbz2-dev
        sqlite3.h libsqlite3-dev
        curl/curl.h libcurl4-openssl-dev
        expat.h libexpat1-dev
        hdf5.h libhdf5-dev
        cblas.h libopenblas-dev
        fftw3.h libfftw3-dev
        Python.h python3-dev
        graphviz/cgraph.h libgraphviz-dev
        portaudio.h portaudio19-dev
        SDL.h libsdl2-dev
        GL/gl.h libgl-dev
        X11/Xlib.h libx11-dev
        event.h libevent-dev
        uv.h libuv1-dev
        magic.h libmagic-dev
        enchant.h libenchant-2-dev
        krb5.h libkrb5-dev
        gssapi/gssapi.h libkrb5-dev
        ldap.h libldap-dev
        sasl/sasl.h libsasl2-dev
        cups/cups.h libcups2-dev
        alsa/asoundlib.h libasound2-dev
        systemd/sd-daemon.h libsystemd-dev
        dbus/dbus.h libdbus-1-dev
        glib.h libglib2.0-dev
        cairo.h libcairo2-dev
        geos_c.h libgeos-dev
        proj.h libproj-dev
        gdal.h libgdal-dev
        libavcodec/avcodec.h libavcodec-dev
        """,
    "program": """
        ffmpeg ffmpeg
        xxd xxd
        tesseract tesseract-ocr
        dot graphviz
        pandoc pandoc
        cmake cmake
        ninja ninja-build
        swig swig
        rustc rustc
        cargo cargo
        gfortran gfortran
        bison bison
        flex flex
        openssl openssl
        redis-server redis-server
        psql postgresql-client-common
        pg_config libpq-dev
        mysql_config libmariadb-dev-compat
        xmllint libxml2-utils
        curl-config libcurl4-openssl-dev
        """,
    "library": """
        xslt libxslt1-dev
        z zlib1g-dev
        ssl libssl-dev
        GL libgl-dev
        jpeg libjpeg62-turbo-dev
        odbc unixodbc-dev
        blas libblas-dev
        libodbc.so.2 libodbc2
        libGL.so.1 libgl1
        libsndfile.so.1 libsndfile1
        """,
    "pkg_config": """
        libffi libffi-dev
        libxml-2.0 libxml2-dev
        cairo libcairo2-dev
        openblas libopenblas-dev
        libavformat libavformat-dev
        """,
}


@pytest.mark.slow
def test_the_first_answer_is_the_one_that_people_mean(home: Path) -> None:
    """On the real index of bookworm (fetched once, 46 MB)."""
    index = ContentsIndex(Base("", "", "bookworm", host_architecture(), "mmdebstrap bookworm"), home, read_clients())
    wrong = []
    for question, table in KNOWN.items():
        for name, expected in (line.split() for line in table.strip().splitlines()):
            answers = getattr(index, question)(name)
            if answers[:1] != (expected,):
                wrong.append((question, name, expected, answers[:3]))
    assert wrong == []
