"""What a hostile repository tries from inside a real sandbox, and what it may not reach."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.actions import write_file
from ratchet.errors import PolicyRefusedError
from ratchet.protocols import Sandbox
from ratchet.records import LimitHit, Limits, Network, SandboxSpec
from ratchet.sandbox.kernel import ID_SHIFT
from ratchet.sandbox.oci import OciBackend

pytestmark = pytest.mark.sandbox

SYSCALL = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(*[ctypes.c_long(int(word, 0)) for word in sys.argv[1:]])
print("done" if result >= 0 else ctypes.get_errno())
"""


@pytest.fixture(scope="module")
def sandbox(backend: OciBackend, base: str) -> Iterator[Sandbox]:
    with backend.open(SandboxSpec((base,), limits=Limits(memory_bytes=1 << 30, time_s=60))) as opened:
        opened.write("/syscall.py", SYSCALL.encode())
        yield opened


def python(sandbox: Sandbox, code: str) -> str:
    sandbox.write("/code.py", code.encode())
    return sandbox.run("python3 /code.py").output.strip()


@pytest.mark.parametrize(
    "path", ["/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/vm/drop_caches", "/sys/power/state"]
)
def test_the_kernel_cannot_be_configured(sandbox: Sandbox, path: str) -> None:
    result = sandbox.run(f"echo probe > {path}")
    assert result.exit_status != 0
    assert any(why in result.output for why in ("Read-only file system", "Permission denied", "nonexistent"))


@pytest.mark.parametrize("path", ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/kmsg"])
def test_what_tells_of_the_host_is_masked(sandbox: Sandbox, path: str) -> None:
    assert sandbox.run(f'test ! -e {path} || test "$(head -c 1 {path} | wc -c)" = 0').ok


@pytest.mark.parametrize("family", [3, 17, 21, 29, 31, 38, 40, 44])
def test_no_sockets_of_other_families(sandbox: Sandbox, family: int) -> None:
    code = f"import socket\ntry: socket.socket({family}, 2)\nexcept OSError as error: print(error.errno)"
    assert python(sandbox, code) == str(errno.EAFNOSUPPORT)


def test_the_usual_sockets_work(sandbox: Sandbox) -> None:
    code = """
import socket
listening = socket.create_server(("127.0.0.1", 0))
socket.create_connection(listening.getsockname()).close()
socket.socketpair()
socket.socket(socket.AF_INET6)
print(socket.if_nameindex(), socket.getaddrinfo("127.0.0.1", 80)[0][4])
"""
    assert python(sandbox, code) == "[(1, 'lo')] ('127.0.0.1', 80)"


CLONE_NEWUSER, CLONE_NEWNS, SIGCHLD = 0x10000000, 0x20000, 17
REFUSED_CALLS = {
    "unshare a user namespace": (272, CLONE_NEWUSER),
    "unshare a mount namespace": (272, CLONE_NEWNS),
    "clone a user namespace": (56, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0),
    "mount": (165, 0, 0, 0, 0, 0),
    "fsopen": (430, 0, 0),
    "bpf": (321, 0, 0, 0),
    "perf_event_open": (298, 0, 0, -1, -1, 0),
    "keyctl": (250, 0, 0),
    "add_key": (248, 0, 0, 0, 0, 0),
    "userfaultfd": (323, 0),
    "io_uring_setup": (425, 1, 0),
    "kexec_load": (246, 0, 0, 0, 0),
    "init_module": (175, 0, 0, 0),
    "open_by_handle_at": (304, 0, 0, 0),
    "setns": (308, 0, 0),
    "TIOCSTI": (16, 0, 0x5412, 0),
    "TIOCSTI, with bits that the kernel ignores": (16, 0, 0x7_0000_5412, 0),
    "TIOCLINUX": (16, 0, 0x541C, 0),
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="system calls by their x86-64 numbers")
@pytest.mark.parametrize("name", REFUSED_CALLS)
def test_system_calls_that_nothing_needs_are_refused(sandbox: Sandbox, name: str) -> None:
    words = " ".join(map(str, REFUSED_CALLS[name]))
    assert sandbox.run(f"python3 /syscall.py {words}").output.strip() == str(errno.EPERM)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="system calls by their x86-64 numbers")
@pytest.mark.parametrize("number", [206, 435, 999])
def test_io_setup_and_clone3_and_the_unknown_are_not_implemented(sandbox: Sandbox, number: int) -> None:
    assert sandbox.run(f"python3 /syscall.py {number} 0 0").output.strip() == str(errno.ENOSYS)


def test_no_more_rights_than_listed(sandbox: Sandbox) -> None:
    lines = dict(
        line.split(":\t", 1) for line in sandbox.run("cat /proc/self/status").output.splitlines() if "\t" in line
    )
    assert lines["NoNewPrivs"] == "1"
    assert lines["Seccomp"] == "2"
    bounding = int(lines["CapBnd"], 16)
    forbidden = {
        "DAC_READ_SEARCH": 2,
        "NET_ADMIN": 12,
        "NET_RAW": 13,
        "SYS_MODULE": 16,
        "SYS_PTRACE": 19,
        "SYS_ADMIN": 21,
        "MKNOD": 27,
    }
    assert [name for name, bit in forbidden.items() if bounding >> bit & 1] == []
    ordinary = sandbox.run("grep CapEff /proc/self/status", user="nobody").output
    assert int(ordinary.split()[1], 16) == 0


def test_root_of_the_sandbox_is_nobody_on_the_host(sandbox: Sandbox) -> None:
    assert sandbox.run("cat /proc/self/uid_map").output.split() == ["0", str(ID_SHIFT), "65536"]
    assert sandbox.run("mknod /device b 8 0").exit_status != 0


def test_the_host_cannot_be_reached(sandbox: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0ratchet-test-{os.getpid()}")
        abstract.listen()
        port = listening.getsockname()[1]
        code = f"""
import socket
for family, address in ((socket.AF_INET, ("127.0.0.1", {port})), (socket.AF_UNIX, "\\0ratchet-test-{os.getpid()}")):
    try:
        socket.socket(family).connect(address)
        print("connected")
    except ConnectionRefusedError:
        print("refused")
try:
    socket.socket().connect(("192.0.2.1", 80))
except OSError as error:
    print(error.errno)
"""
        assert python(sandbox, code).split() == ["refused", "refused", str(errno.ENETUNREACH)]


def test_a_network_that_cannot_be_enforced_is_refused(backend: OciBackend, base: str) -> None:
    with pytest.raises(PolicyRefusedError):
        backend.open(SandboxSpec((base,), network=Network.INSTALL))


@pytest.mark.parametrize(
    "link",
    ["/etc/ratchet-secret", "../../../../../../etc/ratchet-secret", "/proc/1/root/etc/hostname", "/proc/self/fd/0"],
)
def test_links_do_not_lead_out(sandbox: Sandbox, link: str) -> None:
    sandbox.run(f"ln -sfn {link} /link; rm -f /etc/ratchet-secret")
    with pytest.raises(FileNotFoundError):
        sandbox.read("/link")


def test_absolute_links_are_resolved_inside(sandbox: Sandbox) -> None:
    sandbox.run(
        "mkdir -p /inside; echo inner > /inside/hostname; ln -sfn /inside /folder; ln -sfn /etc/written /towards"
    )
    assert sandbox.read("/folder/hostname") == b"inner\n"
    sandbox.write("/towards", b"kept inside")
    assert sandbox.read("/etc/written") == b"kept inside"
    assert not Path("/etc/written").exists()


def test_pipes_and_devices_are_no_files_and_nothing_waits(sandbox: Sandbox) -> None:
    sandbox.run("rm -rf /pipe; mkfifo /pipe; ln -sfn /dev/zero /zero")
    for path in ("/pipe", "/zero"):
        with pytest.raises(FileNotFoundError):
            sandbox.read(path)
    with pytest.raises(OSError):
        sandbox.write("/pipe", b"data")


def test_a_user_writes_with_that_users_rights(sandbox: Sandbox) -> None:
    sandbox.run("rm -rf /data; mkdir -m 777 /data")
    sandbox.write("/data/below/script", b"#!/bin/sh\n", mode=0o750, user="nobody")
    assert sandbox.run("stat -c '%U %a' /data/below /data/below/script").output == "nobody 755\nnobody 750\n"
    for path in ("/root/file", "/etc/passwd", "/etc/new"):
        with pytest.raises(PermissionError):
            sandbox.write(path, b"x", user="nobody")
    sandbox.write("/data/below/mine", b"", user="root")
    assert sandbox.run("stat -c %U /data/below/mine").output == "root\n"


def test_a_damaged_passwd_harms_nothing(backend: OciBackend, base: str) -> None:
    with backend.open(SandboxSpec((base,))) as sandbox:
        sandbox.write("/etc/passwd", b"\xff\xfe:::\nevil:x:4294967295:0::/:/bin/sh\n:x:1\nfine:x:12:13::/tmp:/bin/sh\n")
        assert sandbox.run("id -u").output == "0\n"
        assert sandbox.run("id -u", user="evil").exit_status == 126
        assert sandbox.run("id -u; id -g; echo $HOME $USER $LOGNAME", user="fine").output == "12\n13\n/tmp fine fine\n"
        sandbox.run("rm /etc/group")
        assert sandbox.run("id -u").output == "0\n"


@pytest.mark.parametrize(
    "trap", ["mkfifo /etc/group", "ln -s /dev/zero /etc/passwd", "ln -s /dev/shm/pipe /etc/passwd"]
)
def test_account_files_that_are_no_files_do_not_hang_the_runtime(backend: OciBackend, base: str, trap: str) -> None:
    with backend.open(SandboxSpec((base,))) as sandbox:
        sandbox.run(f"mkfifo /dev/shm/pipe; rm /etc/passwd /etc/group; {trap}")
        result = sandbox.run("true", timeout_s=10)
        assert result.exit_status == 126
        assert "is no regular file" in result.output


def test_a_runtime_that_hangs_is_ended_with_the_time_of_the_command(backend: OciBackend, base: str) -> None:
    with backend.open(SandboxSpec((base,))) as sandbox:
        sandbox.run("mkdir /dev/shm/etc; mkfifo /dev/shm/etc/passwd; mv /etc /etc-old; ln -s /dev/shm/etc /etc")
        result = sandbox.run("true", timeout_s=2)
        assert (result.exit_status, result.limit) == (None, LimitHit.TIME)


def test_packages_and_their_owners_come_out_right(sandbox: Sandbox) -> None:
    """What apt, dpkg, su and others do as root: owners, groups, setuid bits, another user."""
    assert (
        sandbox.run("stat -c '%U:%G %a' /usr/bin/passwd /usr/bin/chage").output == "root:root 4755\nroot:shadow 2755\n"
    )
    script = (
        "install -o man -g mail -m 2755 /bin/true /owned; stat -c '%U:%G %a' /owned; su -s /bin/sh nobody -c 'id -un'"
    )
    assert sandbox.run(script).output == "man:mail 2755\nnobody\n"
    assert sandbox.run("apt-get --version && dpkg --audit").ok


def test_groups_of_a_user(sandbox: Sandbox) -> None:
    sandbox.run("usermod -aG video,audio nobody")
    assert set(sandbox.run("id -Gn", user="nobody").output.split()) == {"nogroup", "video", "audio"}


def test_signals_reach_commands_although_our_parent_ignored_them(home: Path, base: str) -> None:
    """As under `nohup … &`: test suites hang when SIGINT is ignored."""
    import signal
    import subprocess
    import sys

    code = (
        "import sys; from pathlib import Path; from ratchet.sandbox.oci import OciBackend;"
        "from ratchet.records import SandboxSpec\n"
        f"with OciBackend(Path({str(home)!r})).open(SandboxSpec(({base!r},))) as sandbox:\n"
        "    print(sandbox.run('grep SigIgn /proc/self/status /proc/1/status').output)"
    )
    ignore = lambda: [signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGHUP)]  # noqa: E731
    done = subprocess.run([sys.executable, "-c", code], preexec_fn=ignore, capture_output=True, text=True, check=True)
    assert done.stdout.count("0000000000000000") == 2


@pytest.mark.parametrize(
    "damage",
    ["rm -f /bin/sh /usr/bin/dash", "rm -f /bin/sh; echo > /bin/sh; chmod 755 /bin/sh", "rm -f /lib/*/libc.so.6"],
    ids=["removed", "garbage", "no C library"],
)
def test_a_layer_that_took_the_shell_away_is_no_fault_of_ours(backend: OciBackend, base: str, damage: str) -> None:
    with backend.open(SandboxSpec((base,))) as sandbox:
        sandbox.run(damage)
        assert sandbox.snapshot()
        assert "cannot start a shell any more" in sandbox.run("true").output
        layer = sandbox.keep()
    try:
        with backend.open(SandboxSpec((base, layer))) as sandbox:
            assert sandbox.run("true").exit_status == 126
    finally:
        backend.layers.remove(layer)


def test_a_home_that_no_variable_can_hold_is_no_account(backend: OciBackend, base: str) -> None:
    with backend.open(SandboxSpec((base,))) as sandbox:
        sandbox.write("/etc/passwd", b"dev:x:1000:1000::/home/d\0v:/bin/sh\n")
        assert sandbox.run("true", user="dev").exit_status == 126


@pytest.mark.parametrize("trap", ["mkfifo /new", "mkdir /new", "ln -s /proc/1/mem /new", "sed -i /dev:/d /etc/passwd"])
def test_what_is_in_the_way_of_a_file_is_a_failed_step(backend: OciBackend, base: str, trap: str) -> None:
    with backend.open(SandboxSpec((base,))) as sandbox:
        sandbox.run(trap)
        result = write_file(sandbox, "/new", "x", mode=0o644, user="dev")
        assert result is not None and not result.ok
        assert "/new cannot be written" in result.output


def test_other_users_of_the_host_cannot_get_into_a_sandbox(backend: OciBackend, base: str) -> None:
    """By its name, which the list of mounts tells everybody; and what is setuid there is not for the host."""
    with backend.open(SandboxSpec((base,))) as sandbox:
        root = backend.make_mountpoint(sandbox.name)
        as_nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c"]
        looked = subprocess.run([*as_nobody, f"ls {root}"], capture_output=True, text=True, check=False)
        assert "Permission denied" in looked.stderr
        wanted = os.ST_NOSUID | os.ST_NODEV
        assert os.statvfs(root).f_flag & wanted == wanted
