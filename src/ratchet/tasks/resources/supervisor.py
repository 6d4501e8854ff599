"""Runs one test suite as an ordinary user, and keeps what its plugin reports where only root can read it.

    python3 -I -S supervisor.py SPEC        as root, inside a sandbox; needs Python 3.6 and the standard library

SPEC is a JSON file, which is removed as soon as it is read:
    command, cwd, user, env    what runs (`sh -c`), where, as whom, with which variables besides the user's own
    plugin                     what the plugin is told: handed over as an open file without a name
    results, max_bytes         the file that is made for root alone, and how large it may get

The plugin gets two descriptors by the variable RATCHET_RESULTS ("channel:told"). The channel keeps messages apart, and
the kernel says of each from which process it came: those of any but the first that knew the nonce are refused. So
nothing that the suite starts or leaves behind can add to the results. What runs inside pytest's own process can.

Each line of the results is "P " and a message of the plugin, or "S " and one of ours, in JSON:
    started                    the suite runs
    ended, refused, full       its exit status, how many messages were refused, whether there were too many
"""

import ctypes
import json
import os
import pwd
import select
import signal
import socket
import struct
import subprocess
import sys

LARGEST_MESSAGE = 256 << 10
CREDENTIALS = struct.Struct("3i")
PR_SET_CHILD_SUBREAPER = 36
KILLING_ROUNDS = 1000
MESSAGES_AT_ONCE = 1000
MOST_REFUSED = 1000000


def main(spec_path):
    spec = read_spec(spec_path)
    results = os.open(spec["results"], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    told = unnamed_file(spec_path + ".told", json.dumps(spec["plugin"]).encode())
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    # What loses its parent becomes our child, so that it can be found and killed.
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    suite = start(spec, theirs.fileno(), told)
    theirs.close()
    os.close(told)
    relay = Relay(results, spec["plugin"]["nonce"].encode(), spec["max_bytes"])
    relay.own({"started": True})
    relay.follow(suite, ours, woken)
    end_descendants()
    while relay.drain(ours) and relay.more:
        pass
    relay.own({"ended": suite.returncode, "refused": relay.refused, "full": relay.full})
    return suite.returncode if suite.returncode >= 0 else 128 - suite.returncode


def read_spec(path):
    """Also sees to it that nobody but root could have changed anything on the way to it."""
    folder = os.path.dirname(path)
    while True:
        found = os.lstat(folder)
        if found.st_uid != 0 or found.st_mode & 0o022:
            raise SystemExit("supervisor: %s can be changed by others than root" % folder)
        if folder == "/":
            break
        folder = os.path.dirname(folder)
    with open(path, encoding="ascii") as file:
        spec = json.load(file)
    os.unlink(path)
    return spec


def unnamed_file(path, content):
    """A descriptor to read `content` from, which is nowhere in the file system."""
    writer = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    reader = os.open(path, os.O_RDONLY)
    os.unlink(path)
    with os.fdopen(writer, "wb") as file:
        file.write(content)
    return reader


def start(spec, channel, told):
    account = pwd.getpwnam(spec["user"])
    groups = os.getgrouplist(account.pw_name, account.pw_gid)
    env = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    env.update(HOME=account.pw_dir, USER=account.pw_name, LOGNAME=account.pw_name)
    env.update(spec["env"], RATCHET_RESULTS="%d:%d" % (channel, told))

    def become_user():
        os.setgroups(groups)
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
        os.chdir(spec["cwd"])

    return subprocess.Popen(
        ["/bin/sh", "-c", spec["command"]],
        stdin=subprocess.DEVNULL,
        env=env,
        pass_fds=(channel, told),
        preexec_fn=become_user,
        start_new_session=True,
    )


class Relay:
    """Takes the messages of one process into the results."""

    def __init__(self, results, nonce, max_bytes):
        self.results, self.nonce, self.left = results, nonce, max_bytes
        self.writer = None
        self.refused = 0
        self.full = False
        self.more = False

    def follow(self, suite, channel, woken):
        """Until the suite's first process has ended, or there is too much."""
        poll = select.poll()
        poll.register(channel, select.POLLIN)
        poll.register(woken, select.POLLIN)
        channel.setblocking(False)
        while suite.poll() is None and not self.full:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if woken in ready:
                os.read(woken, 4096)
            if channel.fileno() in ready and not self.drain(channel):
                poll.unregister(channel)
        if self.full:
            suite.kill()
            suite.wait()

    def drain(self, channel):
        """Take what is there, or some of it (`more`). False once nobody can write any more."""
        self.more = False
        for _ in range(MESSAGES_AT_ONCE):
            try:
                message, ancillary, _, _ = channel.recvmsg(LARGEST_MESSAGE, socket.CMSG_SPACE(CREDENTIALS.size))
            except BlockingIOError:
                return True
            if not message:
                return False
            self.take(message, ancillary)
        self.more = not self.full
        return True

    def take(self, message, ancillary):
        sender = None
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                sender = CREDENTIALS.unpack(data[: CREDENTIALS.size])[0]
        known = message.startswith(self.nonce) and b"\n" not in message
        if self.writer is None and known:
            self.writer = sender
        if sender is None or sender != self.writer or not known:
            self.refused += 1
            self.full = self.full or self.refused > MOST_REFUSED
            return
        self.left -= len(message)
        if self.left < 0:
            self.full = True
            return
        self.write(b"P " + message[len(self.nonce) :] + b"\n")

    def own(self, message):
        self.write(b"S " + json.dumps(message).encode() + b"\n")

    def write(self, line):
        while line:
            line = line[os.write(self.results, line) :]


def end_descendants():
    """Kill whatever the suite left, also what had become nobody's child."""
    for _ in range(KILLING_ROUNDS):
        children = own_children()
        if not children:
            return
        for child in children:
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return


def own_children():
    mine = str(os.getpid())
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if fields[1].decode() == mine:
                found.append(int(name))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
