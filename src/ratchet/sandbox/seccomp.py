"""Which system calls a sandbox may make: the containers' default profile, closed further.

Starting from the profile that Podman and Docker ship, this leaves out what a build or a test suite does not need and
what has been a way out before: every socket family but unix, inet and netlink (a network namespace does not hold
AF_VSOCK back), new namespaces, mounts, io_uring, bpf, perf, key rings, userfaultfd, typing into a terminal (TIOCSTI).
`clone3` is answered with ENOSYS, as its flags cannot be filtered; C libraries then use `clone`. So is `io_setup`: the
whole machine has one small number of such requests, which one sandbox could take; who uses them has a fallback. Calls
that nobody has heard of are answered with ENOSYS too, so that programs fall back. Only the machine's own architecture
is let in: the 32-bit entry of x86 passes socket families by pointer, where no filter sees them.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Iterable, Iterator
from typing import Any

_EPERM, _ENOSYS, _EPROTONOSUPPORT, _EAFNOSUPPORT = 1, 38, 93, 97
_ARCHITECTURES = {
    "x86_64": "SCMP_ARCH_X86_64",
    "aarch64": "SCMP_ARCH_AARCH64",
    "riscv64": "SCMP_ARCH_RISCV64",
    "ppc64le": "SCMP_ARCH_PPC64LE",
}
_NAMESPACE_FLAGS = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_NAMESPACE_FLAG_TIME = 0x80
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_SOCKET_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
_NETLINK, _NETLINK_PROTOCOLS = 16, (0, 4, 15)  # routes, socket statistics, device events
_PERSONALITIES = (0, 8, 0x20000, 0x20008, 0xFFFFFFFF)

_ALLOWED = """
accept accept4 access alarm arch_prctl bind brk cachestat capget capset chdir chmod chown chroot
clock_getres clock_gettime clock_nanosleep close close_range connect copy_file_range creat dup dup2 dup3
epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2
execve execveat exit exit_group faccessat faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown
fchownat fcntl fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex
futex_requeue futex_wait futex_waitv futex_wake futimesat get_mempolicy get_robust_list get_thread_area getcpu getcwd
getdents getdents64 getegid geteuid getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority
getrandom getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid getxattr
getxattrat inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents
io_pgetevents io_submit ioprio_get ioprio_set kill landlock_add_rule landlock_create_ruleset
landlock_restrict_self lchown lgetxattr link linkat listen listxattr listxattrat llistxattr lremovexattr lseek
lsetxattr lstat madvise map_shadow_stack mbind membarrier memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat
mlock mlock2 mlockall mmap modify_ldt mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink
mremap mseal msgctl msgget msgrcv msgsnd msync munlock munlockall munmap name_to_handle_at nanosleep newfstatat open
openat openat2 pause pidfd_getfd pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll
prctl pread64 preadv preadv2 prlimit64 process_mrelease process_vm_readv process_vm_writev pselect6 ptrace pwrite64
pwritev pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg remap_file_pages removexattr
removexattrat rename renameat renameat2 restart_syscall riscv_flush_icache riscv_hwprobe rmdir rseq rt_sigaction
rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo
sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler
sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select
semctl semget semop semtimedop sendfile sendmmsg sendmsg sendto set_mempolicy set_robust_list set_thread_area
set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid setpriority setregid setresgid setresuid setreuid
setrlimit setsid setsockopt setuid setxattr setxattrat shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4
socketpair splice stat statfs statx symlink symlinkat sync sync_file_range sync_file_range2 syncfs sysinfo tee tgkill
time timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime
timerfd_settime times tkill truncate umask uname unlink unlinkat utime utimensat utimes vfork wait4 waitid waitpid
write writev
"""

_REFUSED = """
acct add_key adjtimex bpf clock_adjtime clock_settime delete_module fanotify_init fanotify_mark finit_module fsconfig
fsmount fsopen fspick init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load
kexec_load keyctl listmount lookup_dcookie migrate_pages mount mount_setattr move_mount move_pages nfsservctl
open_by_handle_at open_tree open_tree_attr perf_event_open pivot_root process_madvise quotactl quotactl_fd reboot
request_key set_mempolicy_home_node setdomainname sethostname setns settimeofday statmount swapoff swapon syslog sysfs
umount2 uselib userfaultfd ustat vhangup vmsplice
"""


@functools.cache
def profile() -> dict[str, Any]:
    """The `linux.seccomp` part of an OCI configuration, for this machine."""
    machine = platform.machine()
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": _ENOSYS,
        "architectures": [_ARCHITECTURES[machine]] if machine in _ARCHITECTURES else [],
        "syscalls": [
            _allow(*_ALLOWED.split()),
            _refuse(_EPERM, *_REFUSED.split()),
            _refuse(_ENOSYS, "clone3", "io_setup"),
            _allow("clone", args=[_masked(0, _NAMESPACE_FLAGS, 0)]),
            *(_refuse(_EPERM, "clone", args=[_masked(0, flag, flag)]) for flag in _bits(_NAMESPACE_FLAGS)),
            _allow("unshare", args=[_masked(0, _NAMESPACE_FLAGS | _NAMESPACE_FLAG_TIME, 0)]),
            *(
                _refuse(_EPERM, "unshare", args=[_masked(0, flag, flag)])
                for flag in _bits(_NAMESPACE_FLAGS | _NAMESPACE_FLAG_TIME)
            ),
            *(_allow("personality", args=[_compare(0, "EQ", value)]) for value in _PERSONALITIES),
            *_socket_rules(),
            *(_allow("ioctl", args=[_masked(1, *cube)]) for cube in all_but((_TIOCSTI, _TIOCLINUX), bits=32)),
            *(_refuse(_EPERM, "ioctl", args=[_masked(1, 0xFFFFFFFF, value)]) for value in (_TIOCSTI, _TIOCLINUX)),
        ],
    }


def all_but(values: Iterable[int], *, bits: int) -> Iterator[tuple[int, int]]:
    """(mask, value) pairs that together match every number of that many bits, save `values`.

    A filter rule compares an argument once, and the kernel looks at the low 32 bits of some while the filter sees 64:
    "not equal" can neither be combined nor trusted. Masks can.
    """

    def below(prefix: int, position: int, left: frozenset[int]) -> Iterator[tuple[int, int]]:
        for bit in (0, 1):
            value = prefix | bit << position
            mask = (1 << bits) - (1 << position)
            matching = frozenset(number for number in left if number & mask == value)
            if not matching:
                yield mask, value
            elif position:
                yield from below(value, position - 1, matching)

    yield from below(0, bits - 1, frozenset(values))


def _socket_rules() -> Iterator[dict[str, Any]]:
    for family in _SOCKET_FAMILIES:
        yield _allow("socket", args=[_compare(0, "EQ", family)])
    for protocol in _NETLINK_PROTOCOLS:
        yield _allow("socket", args=[_compare(0, "EQ", _NETLINK), _compare(2, "EQ", protocol)])
    # useradd asks for the audit protocol (9), and takes this answer for "no auditing here"; ENOSYS stops it.
    for protocol in set(range(max(_NETLINK_PROTOCOLS))) - set(_NETLINK_PROTOCOLS):
        yield _refuse(_EPROTONOSUPPORT, "socket", args=[_compare(0, "EQ", _NETLINK), _compare(2, "EQ", protocol)])
    beyond = _compare(2, "GT", max(_NETLINK_PROTOCOLS))
    yield _refuse(_EPROTONOSUPPORT, "socket", args=[_compare(0, "EQ", _NETLINK), beyond])
    for family in set(range(_NETLINK)) - set(_SOCKET_FAMILIES):
        yield _refuse(_EAFNOSUPPORT, "socket", args=[_compare(0, "EQ", family)])
    yield _refuse(_EAFNOSUPPORT, "socket", args=[_compare(0, "GT", _NETLINK)])


def _bits(mask: int) -> Iterator[int]:
    return (1 << position for position in range(mask.bit_length()) if mask >> position & 1)


def _allow(*names: str, args: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"names": list(names), "action": "SCMP_ACT_ALLOW", "args": args or []}


def _refuse(errno: int, *names: str, args: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"names": list(names), "action": "SCMP_ACT_ERRNO", "errnoRet": errno, "args": args or []}


def _compare(index: int, operator: str, value: int) -> dict[str, Any]:
    return {"index": index, "op": f"SCMP_CMP_{operator}", "value": value}


def _masked(index: int, mask: int, value: int) -> dict[str, Any]:
    return {"index": index, "op": "SCMP_CMP_MASKED_EQ", "value": mask, "valueTwo": value}
