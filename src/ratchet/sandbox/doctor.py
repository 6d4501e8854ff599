"""What this machine can and cannot do for sandboxes, found out by trying, with the remedy for each lack."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path

import requests
import uv

from ratchet.errors import RatchetError
from ratchet.records import Network, SandboxSpec
from ratchet.sandbox.bases import list_bases
from ratchet.sandbox.clients import USUAL_PORTS, ClientSettings, read_clients
from ratchet.sandbox.layers import Layers
from ratchet.sandbox.network import AllowlistNetwork
from ratchet.sandbox.oci import OciBackend
from ratchet.sandbox.proxy import Destination
from ratchet.sandbox.root_archive import host_architecture

MIN_DISK_BYTES = 10 << 30
MIN_MEMORY_BYTES = 2 << 30
MAX_CLOCK_SKEW_S = 300.0

_REGISTRY_TIMEOUT_S = 5.0
_TOOL_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. `needed`: no sandbox runs without it. `detail`: what was found; `remedy`: what to
    do where it is not `ok`."""

    name: str
    ok: bool
    needed: bool
    detail: str
    remedy: str = ""


def checks(home: Path) -> list[Check]:
    """All checks, in the order to mend them. Takes a few seconds; leaves nothing behind but the home's own folders."""
    clients = read_clients()
    found = [_root(), _architecture(), *_tools(), _seccomp(), _cgroups(), _overlay(home), *_space(home)]
    found += [_certificates(clients), *_registries(clients), _bases(home)]
    found.append(_container(home, clients))
    return found


def _root() -> Check:
    user = os.geteuid()
    return Check("root", user == 0, True, "yes" if user == 0 else f"user id {user}", "run it with sudo")


def _architecture() -> Check:
    linux = platform.system() == "Linux"
    detail = f"{platform.system()} {platform.release()}, {host_architecture()}"
    return Check("kernel", linux, True, detail, "sandboxes need Linux: use a machine or a virtual machine with it")


def _tools() -> Iterator[Check]:
    for name, needed, why in (
        ("runc", True, "runs the sandboxes"),
        ("mmdebstrap", True, "builds the bases"),
        ("newuidmap", True, "lets mmdebstrap build in a namespace of its own"),
        ("skopeo", False, "fetches OCI images for `ratchet base import`"),
        ("umoci", False, "unpacks OCI images for `ratchet base import`"),
        ("git", False, "checks out git sources"),
        ("buildah", False, "builds exported Dockerfiles"),
    ):
        path = shutil.which(name)
        package = {"newuidmap": "uidmap"}.get(name, name)
        detail = _version(path) if path else f"not installed ({why})"
        yield Check(name, path is not None, needed, detail, f"apt-get install {package}")
    try:
        yield Check("uv", True, True, _version(uv.find_uv_bin()))
    except FileNotFoundError as error:
        yield Check("uv", False, True, str(error), "install the package `uv` beside ratchet again")


def _version(path: str) -> str:
    if Path(path).name == "newuidmap":  # it has no option that tells
        return path
    try:
        done = subprocess.run(
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path}, which does not run: {error}"
    return (done.stdout.splitlines() or [path])[0].strip()[:60]


def _seccomp() -> Check:
    try:
        there = "Seccomp_filters" in Path("/proc/self/status").read_text() or Path("/proc/sys/kernel/seccomp").is_dir()
    except OSError:
        there = False
    return Check(
        "seccomp", there, True, "filters" if there else "no filters", "use a kernel with CONFIG_SECCOMP_FILTER"
    )


def _cgroups() -> Check:
    """Which hierarchy, and the controllers in it that limits need."""
    lines = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    unified = [line[1] for line in lines if line[2] == "cgroup2"]
    separate = {option for line in lines if line[2] == "cgroup" for option in line[3].split(",")}
    controllers = {"memory", "pids", "cpu"} & separate
    for mount in unified:
        try:
            controllers |= {"memory", "pids", "cpu"} & set((Path(mount) / "cgroup.controllers").read_text().split())
        except OSError:
            continue
    layout = "hybrid" if unified and separate else "v2" if unified else "v1" if separate else "none"
    missing = {"memory", "pids", "cpu"} - controllers
    detail = f"{layout}: {', '.join(sorted(controllers)) or 'no controllers'}"
    remedy = f"enable the controllers {', '.join(sorted(missing))}: kernel command line or the container's settings"
    return Check("cgroups", not missing, True, detail, remedy)


def _overlay(home: Path) -> Check:
    """Really mount one, with its upper directory in this home."""
    remedy = f"set RATCHET_HOME to a directory on ext4, xfs or btrfs (now: {home}), and load the module `overlay`"
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home, prefix=".doctor-") as scratch:
            lower, upper, work, merged = (Path(scratch) / name for name in ("lower", "upper", "work", "merged"))
            for each in (lower, upper, work, merged):
                each.mkdir()
            options = f"lowerdir={lower},upperdir={upper},workdir={work},volatile"
            done = _quietly(["mount", "-t", "overlay", "overlay", "-o", options, str(merged)])
            if done:
                return Check("overlay", False, True, done, remedy)
            try:
                (merged / "probe").write_text("")
            finally:
                _quietly(["umount", "--lazy", str(merged)])
    except OSError as error:
        return Check("overlay", False, True, str(error), remedy)
    return Check("overlay", True, True, f"mounts in {home}")


def _quietly(command: list[str]) -> str:
    """Run a command; empty when it worked, else what it said."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stderr.strip() or f"status {done.returncode}")[:200]


def _space(home: Path) -> Iterator[Check]:
    free = shutil.disk_usage(next(each for each in (home, *home.parents) if each.exists())).free
    yield Check("disk", free >= MIN_DISK_BYTES, False, f"{_gib(free)} free", f"free {_gib(MIN_DISK_BYTES)} for {home}")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    detail = f"{_gib(memory)}, {len(os.sched_getaffinity(0))} cores"
    remedy = f"large projects need more than {_gib(MIN_MEMORY_BYTES)}"
    yield Check("memory", memory >= MIN_MEMORY_BYTES, False, detail, remedy)


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.0f} GiB"


def _certificates(clients: ClientSettings) -> Check:
    bundle = clients.ca_bundle
    return Check("certificates", bundle is not None, False, str(bundle or "none"), "apt-get install ca-certificates")


def _registries(clients: ClientSettings) -> Iterator[Check]:
    """Ask each; their Date headers show how far off this machine's clock is."""
    verify = str(clients.ca_bundle) if clients.ca_bundle else True

    def ask(destination: Destination) -> tuple[Destination, str, float | None]:
        scheme = next((name for name, port in USUAL_PORTS.items() if port == destination.port), "https")
        url = f"{scheme}://{destination.host}:{destination.port}/"
        try:
            response = requests.head(url, timeout=_REGISTRY_TIMEOUT_S, verify=verify, allow_redirects=False)
        except requests.RequestException as error:
            return destination, type(error).__name__, None
        try:
            date = parsedate_to_datetime(response.headers.get("Date", ""))
        except ValueError:
            return destination, "", None
        return destination, "", time.time() - date.timestamp()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, clients.destinations))
    failed = [f"{each.host} ({why})" for each, why, _ in answers if why]
    reached = ", ".join(dict.fromkeys(each.host for each, why, _ in answers if not why)) or "none"
    remedy = "check the network, the clients' configuration and https_proxy; installs download packages"
    yield Check("registries", not failed, False, f"not reached: {', '.join(failed)}" if failed else reached, remedy)
    skews = [skew for _, _, skew in answers if skew is not None]
    if skews:
        skew = min(skews, key=abs)
        right = abs(skew) < MAX_CLOCK_SKEW_S
        detail = "right" if right else f"{abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'}"
        yield Check("clock", right, False, detail, "set the clock: certificates and apt depend on it")
    for note in clients.notes:
        yield Check("local index", False, False, note, "mend it, or take it out of the client's configuration")


def _bases(home: Path) -> Check:
    bases = [each for each in list_bases(home) if Layers(home).exists(each.id)]
    detail = ", ".join(f"{each.name} (Python {', '.join(each.pythons) or 'none'})" for each in bases)
    return Check("bases", bool(bases), False, detail or "none yet", "ratchet base build bookworm")


def _container(home: Path, clients: ClientSettings) -> Check:
    """Really start a sandbox, where there is a base for it, with the install network attached."""
    name = "sandbox"
    base = next(
        (b for b in list_bases(home) if b.architecture == host_architecture() and Layers(home).exists(b.id)), None
    )
    if base is None:
        problem = _quietly(["unshare", "--user", "--map-root-user", "--mount", "--pid", "--net", "--fork", "true"])
        remedy = "allow user namespaces: sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone"
        return Check(name, not problem, True, problem or "namespaces work; not started, for want of a base", remedy)
    remedy = "the text says what failed; inside a container, it has to be privileged"
    try:
        begin = time.monotonic()
        backend = OciBackend(home, network=AllowlistNetwork(clients, home))
        with backend.open(SandboxSpec((base.id,), network=Network.INSTALL)) as sandbox:
            result = sandbox.run("id -u", timeout_s=_TOOL_TIMEOUT_S)
        seconds = time.monotonic() - begin
    except (RatchetError, OSError) as error:
        return Check(name, False, True, str(error).splitlines()[0][:200], remedy)
    ok = result.ok and result.output.strip() == "0"
    return Check(name, ok, True, f"started and ended in {seconds:.1f} s" if ok else result.output[:200], remedy)
