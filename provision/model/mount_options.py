"""Which options a file system can be mounted with: mount(8), nfs(5), mount.lustre(8). Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

#: Of any file system, those that systemd and mount take out included.
_ANY = """
async atime auto defaults dev diratime dirsync exec group iversion lazytime loud mand noatime noauto nodev
nodiratime noexec nofail noiversion nolazytime nomand norelatime nostrictatime nosuid nosymfollow nouser owner
relatime ro rw silent strictatime suid sync user users _netdev
""".split()  # noqa: SIM905 - read as a text, not as a list of quotes
_NUMBER = r"\d{1,10}"
_VERSIONS = {"nfs": "3 4 4.0 4.1 4.2", "nfs4": "4 4.0 4.1 4.2"}
_PROTOCOLS = "tcp|tcp6|udp|udp6|rdma|rdma6"
_FLAVOUR = r"(sys|none|krb5|krb5i|krb5p|lkey|lkeyi|lkeyp|spkm|spkmi|spkmp)"
#: Of NFS: words alone, and those with a value.
_NFS = """
ac acl bg cto fg fsc hard intr lock migration noac noacl nocto nofsc nointr nolock nomigration nordirplus noresvport
nosharecache nosoftreval rdirplus rdma resvport sharecache sloppy soft softerr softreval tcp udp
""".split()  # noqa: SIM905
_VALUES = {
    **dict.fromkeys(
        (
            *("acdirmax", "acdirmin", "acregmax", "acregmin", "actimeo", "max_connect", "minorversion"),
            *("mountvers", "namlen", "retrans", "retry", "rsize", "trunkdiscovery", "wsize"),
        ),
        (_NUMBER, "a whole number"),
    ),
    **dict.fromkeys(("port", "mountport"), (r"[0-5]?\d{1,4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5]", "a port")),
    # The kernel takes 16 at most (NFS_MAX_CONNECTIONS in fs/nfs/fs_context.c), clients of makers of storage more.
    "nconnect": (r"[1-9]\d{0,2}", "a number from 1 on"),
    **dict.fromkeys(("proto", "mountproto"), (_PROTOCOLS, _PROTOCOLS.replace("|", ", "))),
    "timeo": (r"0*[1-9]\d{0,8}", "tenths of a second, from 1 on"),
    "sec": (rf"{_FLAVOUR}(:{_FLAVOUR})*", "sys, krb5, krb5i or krb5p, with colons"),
    "lookupcache": ("all|none|pos|positive", "all, none or positive"),
    "local_lock": ("all|flock|posix|none", "all, flock, posix or none"),
    "xprtsec": ("none|tls|mtls", "none, tls or mtls"),
    "write": ("lazy|eager|wait", "lazy, eager or wait"),
    "fsc": (r".+", "a name"),
    "rdirplus": ("none|force", "none or force"),
    **dict.fromkeys(("addr", "clientaddr", "mountaddr", "mounthost"), (r".+", "an address")),
}
#: What stands for itself wherever it is: labels of SELinux, what systemd reads, comments.
_FREE = re.compile(r"(x-[\w.-]+|comment|context|fscontext|defcontext|rootcontext)(=.*)?|no?trunkdiscovery")
#: Options that Lustre's client refuses.
_NFS_ALONE = """
actimeo hard lookupcache mountproto mountvers nconnect nfsvers noac nolock proto retrans rsize sec soft softerr tcp
timeo udp vers wsize
""".split()  # noqa: SIM905
#: Networks of LNet, each with a number: lnet_netstrfns in Lustre's lnet/utils/lnetconfig.
_NETWORKS = ("tcp", "o2ib", "kfi", "gni", "efa")
#: LUSTRE_MAXFSNAME there.
_LONGEST = 8
#: What a server says of an export: exports(5). The kernel's client refuses a mount with one of them.
_EXPORTS = """
all_squash anongid anonuid crossmnt fsid hide insecure insecure_locks mountpoint mp no_acl no_all_squash no_auth_nlm
no_root_squash no_subtree_check no_wdelay nohide pnfs no_pnfs refer replicas root_squash secure secure_locks
security_label subtree_check wdelay
""".split()  # noqa: SIM905
#: Two of which one is without effect.
_APART = (
    *(("ro", "rw"), ("hard", "soft"), ("hard", "softerr"), ("bg", "fg"), ("sync", "async"), ("suid", "nosuid")),
    *(("dev", "nodev"), ("exec", "noexec"), ("lock", "nolock"), ("ac", "noac"), ("tcp", "udp"), ("auto", "noauto")),
    *(("atime", "noatime"), ("cto", "nocto"), ("acl", "noacl"), ("fsc", "nofsc"), ("sharecache", "nosharecache")),
)


def wrong_option(fstype: str, options: Sequence[str]) -> tuple[str, str] | None:
    """Return what is wrong with the options, and what to do; None where nothing is found.

    Of Lustre's only those of any file system are known, and so is none of them unknown.
    """
    for one, other in _APART:
        if one in options and other in options:
            return f"{one} and {other} exclude each other", "leave one of them"
    if fstype == "lustre" and (own := next((one for one in options if one.partition("=")[0] in _NFS_ALONE), "")):
        return f"{own[:70]} is an option of NFS, and this is lustre", f"remove {own.partition('=')[0]}; mount.lustre(8)"
    if fstype not in _VERSIONS:
        return None
    told = [option.partition("=")[2] for option in options if option.startswith(("vers=", "nfsvers="))]
    datagrams = next((one for one in options if one in ("udp", "proto=udp", "proto=udp6")), "")
    if datagrams and (told or ["4" if fstype == "nfs4" else "3"])[0].startswith("4"):
        return f"{datagrams} is not for NFS 4, which goes over TCP or RDMA", f"remove {datagrams}"
    names = ["vers" if (name := option.partition("=")[0]) == "nfsvers" else name for option in options]
    if twice := next((name for name in names if names.count(name) > 1 and "=" in options[names.index(name)]), ""):
        return f"{twice} is there twice", "leave one of them"
    versions = _VERSIONS[fstype].split()
    values: Mapping[str, tuple[str, str]] = {
        **_VALUES,
        **dict.fromkeys(("vers", "nfsvers"), ("|".join(map(re.escape, versions)), f"one of {', '.join(versions)}")),
    }
    for option in options:
        name, is_set, value = option.partition("=")
        if _FREE.fullmatch(option) or (not is_set and name in (*_ANY, *_NFS)):
            continue
        if name in values and is_set:
            pattern, what = values[name]
            if re.fullmatch(pattern, value):
                continue
            return f"{option[:70]}: it must be {what}", f"correct {name}; nfs(5)"
        if name in values:
            return f"{name} has no value", f"write {name}=...; nfs(5)"
        if name in (*_ANY, *_NFS):
            return f"{option[:70]}: {name} has no value", f"write {name} alone; nfs(5)"
        if name in _EXPORTS and "sloppy" not in options:
            fix = "remove it, and have it in the server's export (nfs_server_export_options where that is one of ours)"
            return f"{option[:70]} is an option of the server's export", fix
        # Clients of makers of storage, and newer kernels, have options of their own: only what is misspelt is refused.
        if near := difflib.get_close_matches(name, [*_ANY, *_NFS, *values], n=1, cutoff=0.85):
            return f"there is no option {option[:70]!r}", f"did you mean {near[0]}?"
    return None


def wrong_lustre(source: str) -> tuple[str, str] | None:
    """Return what is wrong with the source of a Lustre file system, and what to do; None where nothing is found."""
    servers, _, directory = source.rpartition(":/")
    name = directory.strip("/").partition("/")[0]
    if len(name) > _LONGEST:
        return f"{name[:40]} has {len(name)} letters, and no file system of Lustre's more than {_LONGEST}", "correct it"
    for one in re.split(r"[,:]", servers):
        address, is_told, network = one.partition("@")
        kind = re.sub(r"\d+$", "", network) if network not in _NETWORKS else network
        # There are others, of few machines.
        near = difflib.get_close_matches(network, _NETWORKS, n=1) if is_told and kind not in _NETWORKS else []
        if near:
            return f"there is no network {network[:40]!r}", f"did you mean {near[0]}?"
        if re.fullmatch(r"\d+(\.\d+)+", address) and not _is_address(address):
            return f"{address[:40]} is no address", "correct it"
    return None


def _is_address(text: str) -> bool:
    parts = text.split(".")
    return len(parts) == 4 and all(len(part) <= 3 and int(part) <= 255 for part in parts)
