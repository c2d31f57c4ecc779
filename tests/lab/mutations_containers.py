"""Rows of the mutation table: Slurm's containers and configuration."""

from __future__ import annotations

from mutation import Row, spoilt

from provision.slurm.names import FETCHED

CONF = "/etc/slurm"
CACHE = "/var/spool/slurmd/conf-cache"
FETCHED_FOR_USERS = "/run/slurm"
#: The daemon of a machine that is no compute node.
DAEMONS = {"head": "slurmctld", "login1": "sackd"}

#: Makes a container again as it was, but for one thing; over the engine's own interface, whose words are all it has.
REMAKE = """
python3 - <<'END'
import http.client, json, socket
class Engine(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect("/var/run/docker.sock")
def ask(method, path, body=None):
    engine = Engine("docker")
    engine.request(method, path, json.dumps(body) if body else None, {{"Content-Type": "application/json"}})
    answer = engine.getresponse()
    said = answer.read()
    assert answer.status < 300, said
    return json.loads(said or b"null")
told = ask("GET", "/containers/{name}/json")
config, host = told["Config"], told["HostConfig"]
{change}
ask("DELETE", "/containers/{name}?force=1")
ask("POST", "/containers/create?name={name}", {{**config, "HostConfig": host}})
ask("POST", "/containers/{name}/start")
END
"""


def remade(what: str, on: str, change: str, *says: str) -> Row:
    """Return a row: the daemon's container is another one, because of a change of ``config`` or ``host``."""
    name = DAEMONS.get(on, "slurmd")
    red = {"slurm_service.containers": tuple(f"{name} {words}" if words.startswith("is ") else words for words in says)}
    return Row(what, on, REMAKE.format(name=name, change=change), red, (), (name,))


def container(what: str, on: str, how: str, says: str, *, started: bool = True) -> Row:
    """Return a row: something is done to the daemon's container with the engine's own command."""
    name = DAEMONS.get(on, "slurmd")
    return Row(what, on, how, {"slurm_service.containers": f"{name} {says}"}, (), (name,) if started else ())


#: Of a login host: that daemon is let go on, and not started anew.
PAUSED = (container("sackd is paused", "login1", "docker pause sackd", "is paused", started=False),)

#: Each batch of the night has one of these a machine.
STATES = (
    container("slurmctld is paused", "head", "docker pause slurmctld", "is paused", started=False),
    container("slurmd is stopped", "node1", "docker stop --time 5 slurmd", "is exited"),
    container("slurmd is removed", "node2", "docker rm --force slurmd", "does not exist"),
    container("sackd is stopped", "login1", "docker stop --time 5 sackd", "is exited"),
)

#: Of login hosts: what users' commands read.
LOGINS = (
    *spoilt("text", "slurm_service", "/etc/tmpfiles.d/clusterctl-slurm.conf", "login1"),
    *spoilt("mode", "slurm_service", FETCHED_FOR_USERS, "login1"),
    # It would win over what sackd has fetched.
    *spoilt("there", "slurm_conf", f"{CONF}/slurm.conf", "login1"),
    Row(
        "sackd was not reached with another configuration",
        "login1",
        f"echo '# by hand' >>{FETCHED_FOR_USERS}/conf/slurm.conf",
        {"slurm_service.configuration": "sackd runs with another slurm.conf than the controller's"},
        (),
        ("sackd",),
    ),
)

#: Done to the container of ``REMADE``: a check tells both.
NO_RETURN = (
    container(
        "slurmd does not come back by itself",
        "node1",
        "docker update --restart no slurmd",
        "has restart policy no, not unless-stopped",
    ),
)

UPDATES = (
    container(
        "slurmctld may use less memory",
        "head",
        "docker update --memory 2g --memory-swap 2g slurmctld",
        "has Memory 2147483648",
    ),
    container(
        "slurmd may use little memory",
        "node1",
        "docker update --memory 1g --memory-swap 1g slurmd",
        "has Memory 1073741824",
    ),
    container("slurmd may use one processor", "node2", "docker update --cpus 1 slurmd", "has NanoCpus 1000000000"),
    # What the engine cannot know stands in a label of ours, which comes and goes with the container.
    remade(
        "sackd was started with other settings of its own",
        "login1",
        'config["Labels"]["clusterctl.started_with"] = "by hand"',
        "has clusterctl.started_with by hand",
    ),
)

REMADE = (
    remade("slurmctld has a capability more", "head", 'host["CapAdd"] = ["NET_ADMIN"]', "has capability NET_ADMIN"),
    remade("slurmd sees another directory", "node1", 'host["Binds"].append("/srv:/srv:ro")', "has mount /srv:/srv:ro"),
    remade(
        "slurmd is of another image", "node2",
        'config["Image"] = ask("POST", "/commit?container=slurmd&repo=by-hand")["Id"]', "has another image",
    ),
)  # fmt: skip


def left(names: list[str]) -> Row:
    """Return a row: somebody has left files in Slurm's directory that slurmctld would hand to the nodes."""
    return Row(
        f"{', '.join(names)} were left in {CONF}",
        "head",
        f"for name in {' '.join(names)}; do echo '# by hand' >{CONF}/$name; done",
        {"slurm_conf.files": tuple(f"{CONF}/{name} is there" for name in names)},
        follows=("slurm_service.configuration",),
    )


#: In two batches: a check names five things and counts the others.
# Two of them are ours, and have rows of their own.
STRAYS = [name for name in FETCHED if name not in ("job_container.conf", "plugstack.conf")]
LEFT, LEFT_TOO = left(STRAYS[:5]), left(STRAYS[5:])

#: The engine copies a machine's hosts file when a container starts; a container shows the very copy of then.
_ANOTHER_ADDRESS = """
copy=$(docker container inspect --format '{{{{.HostsPath}}}}' {name})
text=$(sed 's/^.*[[:space:]]node2$/192.0.2.9 node2/' "$copy")
printf '%s\\n' "$text" >"$copy"
"""

_NOT_TOLD = "slurmctld has not read its current files or the machines' current addresses"

CONFIGURATION = (
    # A key that Slurm does not know stops scontrol, too, which reads the same file.
    Row(
        "slurm.conf was edited, and slurmctld not told",
        "head",
        f"echo Frobnicate=1 >>{CONF}/slurm.conf; ! scontrol ping 2>/dev/null",
        {
            "slurm_conf.files": f"{CONF}/slurm.conf has another text",
            "slurm_service.configuration": "slurmctld runs with another slurm.conf than the inventory renders",
        },
        ("slurm_service.configuration",),
    ),
    *spoilt("owner", "slurm_conf", f"{CONF}/gres.conf", "head"),
    *spoilt("mode", "slurm_conf", f"{CONF}/cgroup.conf", "head"),
    *spoilt("mode", "slurm_conf", f"{CONF}/job_container.conf", "head"),
    *spoilt("mode", "slurm_conf", CONF, "head"),
    Row(
        "slurmd knows another address of a machine",
        "node1",
        _ANOTHER_ADDRESS.format(name="slurmd"),
        {"slurm_service.names": "slurmd has an outdated /etc/hosts"},
    ),
)

#: In a batch in which slurmctld is not told of anything else: then it sends all files to all nodes. So does this, which
#: leaves no row for files that slurmd did not come up with; test_slurm_change has that.
MISSED = (
    Row(
        "slurmd has fetched another file",
        "node1",
        f"echo '# by hand' >>{CACHE}/gres.conf",
        {"slurm_service.configuration": "slurmd runs with another gres.conf than the controller's"},
    ),
)

KILLED = (
    Row(
        "slurmctld was not told of another address of a machine",
        "head",
        _ANOTHER_ADDRESS.format(name="slurmctld"),
        {
            "slurm_service.names": "slurmctld has an outdated /etc/hosts",
            "slurm_service.configuration": _NOT_TOLD,
        },
    ),
    Row(
        "killed between slurm.conf and its reconfiguration",
        "head",
        # As it is recorded, slurmctld was told of other texts than these.
        "sed -i s/ClusterName/Clustername/ /var/lib/clusterctl/slurm/running.json",
        {"slurm_service.configuration": _NOT_TOLD},
    ),
)
