"""Building the cell, from inside: namespaces, a private root, another uid. Runs in the zygote's process before any program.

    enter(uid) -> {"layers", "missing", "uid", "fork_needed"}      every layer is tried by doing it; what fails is named

Order matters. As root: namespaces and mounts first, while we may, and the uid last. As an ordinary user: a user namespace
first, which grants the rights for the rest inside it. Everything is read and mounted before the uid changes, so an
interpreter and a checkout under a home that others cannot read work as well.

The private root is entered by chroot and not by pivot_root on purpose: the kernel lets no process in a chroot create a
user namespace, which is where nested privileges would come from, and leaving a chroot takes a capability that is gone.

Loaded by path into the sandbox process: standard library only.
"""

import ctypes
import os
import signal
import sys

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _PRIVATE, _RELATIME = 1, 2, 4, 32, 4096, 16384, 1 << 18, 1 << 21
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_SYSTEM_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo")
_MOUNT_POINTS = ("/mnt", "/tmp", "/media", "/srv", "/sys")


def enter(uid):
    """Enter every layer that the machine gives. The caller forks next when `fork_needed`: only then the PID namespace holds."""
    layers, missing = ["clean environment", "rlimits"], []
    if not sys.platform.startswith("linux"):
        missing.append(f"namespaces: {sys.platform} has none")
        return {"layers": layers, "missing": missing, "uid": os.getuid(), "fork_needed": False}
    is_root = os.geteuid() == 0
    if is_root and _failure(_unshare, _NEWPID):
        drop_uid(uid)  # root without the right to make namespaces, as in a container: go on as an ordinary user
        _check(_LIBC.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0))  # else /proc/self, and the map of the namespace, belong to root
        is_root = False
    steps = [] if is_root else [("user namespace", _own_user_namespace)]
    steps += [
        ("pid namespace", lambda: None if is_root else _unshare(_NEWPID)),
        ("network namespace", lambda: _unshare(_NEWNET)),
        ("ipc namespace", lambda: _unshare(_NEWIPC | _NEWUTS)),
        ("private root", _private_root),
    ]
    for name, step in steps:
        problem = _failure(step)
        if problem:
            missing.append(f"{name}: {problem}")
        else:
            layers.append(name)
    layers.append("non-root uid")
    in_effect = uid if is_root else os.getuid()
    return {"layers": layers, "missing": missing, "uid": in_effect, "fork_needed": "pid namespace" in layers}


def seal(uid):
    """Give up what was needed to build the cell: uid 0, capabilities, the right to gain any; and end with the parent."""
    if os.geteuid() == 0:
        drop_uid(uid)
    if not sys.platform.startswith("linux"):
        return
    _check(_LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _check(_LIBC.capset(header, (ctypes.c_uint32 * 6)()))
    _check(_LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))  # no ptrace and no /proc/<pid>/mem between processes of the same uid
    die_with_parent()  # last: a change of credentials clears it


def die_with_parent():
    if sys.platform.startswith("linux"):
        _check(_LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0))


def drop_uid(uid):
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _failure(step, *arguments):
    """The machine's reason when the step does not work here, else an empty string."""
    try:
        step(*arguments)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _check(result):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _unshare(flags):
    _check(_LIBC.unshare(flags))


def _own_user_namespace():
    uid, gid = os.getuid(), os.getgid()
    _unshare(_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _mount(source, target, kind, flags, options=""):
    _check(
        _LIBC.mount(os.fsencode(source), os.fsencode(target), kind and kind.encode(), ctypes.c_ulong(flags), options.encode())
    )


def _private_root():
    """A read-only root that holds the interpreter's library and the system's shared libraries, and nothing of the user's."""
    sources = _runtime_paths()
    free = [
        point for point in _MOUNT_POINTS if os.path.isdir(point) and not any(path.startswith(point + "/") for path in sources)
    ]
    if not free:
        raise OSError(f"none of {', '.join(_MOUNT_POINTS)} can carry it")
    root = free[0]
    _unshare(_NEWNS)
    _mount("none", "/", None, _REC | _PRIVATE)
    _mount("none", root, "tmpfs", _NOSUID | _NODEV, "size=1m,mode=755")
    for source in sources:
        target = root + source
        if os.path.islink(source):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.symlink(os.readlink(source), target)
            continue
        os.makedirs(target, exist_ok=True)
        _mount(source, target, None, _BIND | _REC)
        kept = os.statvfs(target).f_flag  # an unprivileged remount may not take flags away
        kept = (kept & (8 | 1024 | 2048)) | (_RELATIME if kept & 4096 else 0)
        _mount("none", target, None, _BIND | _REMOUNT | _RDONLY | _NOSUID | _NODEV | kept)
    _mount("none", root, None, _REMOUNT | _RDONLY | _NOSUID | _NODEV)
    os.chroot(root)
    os.chdir("/")


def _runtime_paths():
    """Directories to show, none below another. Links at the top (`/lib` -> `usr/lib`) are kept as links."""
    wanted = [path for path in _SYSTEM_LIBRARIES if os.path.exists(path)]
    wanted += [path for path in (os.path.join(sys.base_prefix, "lib"), *sys.path) if os.path.isdir(path)]
    chosen = []
    for path in sorted(wanted, key=len):
        if not any(path == other or path.startswith(other + "/") for other in chosen):
            chosen.append(path)
    return chosen
