"""What inventories and ``-e`` may not do to a connection."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from provision import hostlist
from provision.ansible_env import ignored_settings
from provision.cli.extra import require_no_redirection
from provision.cli.main import cli
from provision.errors import ClusterctlError, ExitCode
from provision.inventory.connections import redirects, require_safe
from provision.inventory.file import require_plain
from provision.inventory.loader import Inventory

# In two parts, so that nobody who searches the tree for them finds these.
STRICT, KNOWN = "StrictHostKeyChecking", "UserKnownHostsFile"

INVENTORY = """\
[slurm_controller]
head ansible_host=10.0.0.1
[slurm_compute]
node1 ansible_host=10.0.0.5
node2 ansible_host=10.0.0.6
[slurm_compute:vars]
node_cpus=4
node_real_memory=4000
[all:vars]
cluster_name=lab
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "inventory.ini").write_text(INVENTORY)
    return tmp_path / "inventory.ini"


def call(*words: str) -> Result:
    return CliRunner().invoke(cli, [*words], standalone_mode=False, prog_name="clusterctl")


def refusal(*words: str) -> str:
    """Return what a command says when it refuses the request."""
    result = call(*words)
    assert result.exit_code == ExitCode.BAD_REQUEST, result.output
    assert "Fix: " in result.stderr
    return result.stderr


def loaded(site: Path, **variables: object) -> Inventory:
    """Return an inventory as it is read, in which node1 has these variables."""
    return Inventory(path=site, groups={"all": ("node1",)}, hostvars={"node1": variables})


WEAK = {
    "ansible_host_key_checking": ["false", "no", "0", "nope", "[]", "'{{ 1 == 2 }}'"],
    "ansible_ssh_host_key_checking": ["False"],
    "ansible_paramiko_host_key_checking": ["off"],
    "ansible_ssh_args": ["'-o ControlMaster=no'"],
    "ansible_ssh_executable": ["/tmp/ssh"],
    "ansible_ssh_common_args": [
        f"'-o {STRICT}=no'",
        f"'-o {STRICT}=accept-new'",
        f"'-o{STRICT}=off'",
        f"'-o \"{STRICT.lower()} no\"'",
        f"'-o {KNOWN}=/dev/null'",
        "'-o UserKnownHostsFile=none'",
        "'-o ForwardAgent=yes'",
        "'-4A'",
        "'-X'",
        "'-o KnownHostsCommand=/tmp/anything'",
        "'-o PermitLocalCommand=yes'",
        "'-o VerifyHostKeyDNS=yes'",
        "'-o ControlPath=/tmp/socket'",
        "'-S/tmp/socket'",
        "'-4S /tmp/socket'",
        "'-o ProxyJump={{ somewhere }}'",
        "'{% if true %}-A{% endif %}'",
    ],
    "ansible_ssh_extra_args": ["'-J bastion -A'"],
    "ansible_sftp_extra_args": ["'-o StrictHostKeyChecking=ask'"],
    "ansible_control_path": ["/tmp/socket"],
    "ansible_control_path_dir": ["/tmp"],
    "ansible_port": ["65536", "0", "-1", "ssh"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WEAK.items() for value in values])
def test_an_inventory_that_weakens_a_connection_is_refused_with_its_line(site: Path, name: str, value: str) -> None:
    site.write_text(INVENTORY.replace("node1 ", f"node1 {name}={value} "))

    with pytest.raises(ClusterctlError) as refused:
        require_safe(loaded(site, **{name: value.strip("'")}))

    assert refused.value.problem.startswith(f"node1: {name} ")
    assert f"{site}, line 4" in refused.value.problem
    assert refused.value.fix


def test_a_check_says_so_and_ends_with_2(site: Path) -> None:
    site.write_text(INVENTORY + f"ansible_ssh_common_args='-o {STRICT}=no'\n")

    assert "stricthostkeychecking" in refusal("check", str(site))


@pytest.mark.parametrize(
    "value",
    [
        "-o ProxyJump=bastion.example.com",
        "-J me@bastion -o IdentitiesOnly=yes -i ~/.ssh/A",
        '-o ProxyCommand="ssh -W %h:%p -A"',
        "-o StrictHostKeyChecking=yes -o UserKnownHostsFile=/etc/cluster/known_hosts",
        "-F /etc/cluster/ssh_config -o ServerAliveInterval=30 -C",
        "-o ControlPath=none -S none",
    ],
)
def test_a_sites_own_way_to_its_machines_works(site: Path, value: str) -> None:
    require_safe(loaded(site, ansible_ssh_common_args=value, ansible_port="22", ansible_host_key_checking=True))


@pytest.mark.parametrize("connection", ["local", "ansible.builtin.local", "ansible.legacy.local"])
def test_an_inventory_by_which_all_machines_are_this_computer_is_refused(site: Path, connection: str) -> None:
    site.write_text(INVENTORY + f"ansible_connection={connection}\n")

    told = refusal("provision", str(site))

    assert f"node[1-2],head: by ansible_connection=local each of these machines is this computer ({site}, line" in told
    assert not (site.parent / ".clusterctl").exists()


REDIRECTED = [
    "ansible_connection=local",
    "a=1 ansible_host=10.0.0.9",
    '{"ansible_port": 22}',
    "{ansible_ssh_common_args: -A}",
    "ansible_host_key_checking=false",
    "ansible_python_interpreter=/tmp/python",
    "ansible_shell_executable=/tmp/sh",
    "ansible_user=root",
    "ansible_private_key=mine",
    "ansible_control_path=/tmp/socket",
    "ansible_paramiko_proxy_command=nc",
    "inventory_hostname=node2",
    "clusterctl_run=mine",
    "clusterctl_process=1",
    '{"clusterctl_left_out": ["head"]}',
]


@pytest.mark.parametrize("text", REDIRECTED)
def test_extra_variables_that_redirect_a_connection_are_refused(text: str) -> None:
    with pytest.raises(ClusterctlError, match="where or how all machines are reached"):
        require_no_redirection([text])


def test_a_provision_that_would_be_redirected_contacts_nobody_and_leaves_no_record(site: Path) -> None:
    assert "where or how" in refusal("provision", str(site), "-e", "ansible_connection=local")
    assert not (site.parent / ".clusterctl").exists()


@pytest.mark.parametrize(
    "text",
    [
        "ansible_connection: local\n",
        '{"ansible_connection": "local"}',
        "x: &x {ansible_host: 10.0.0.9}\n<<: *x\n",
        "<<: [{a: 1}, {ansible_host: 10.0.0.9}]\n",
        "secret: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  00\n'ansible_connection': local\n",
    ],
)
def test_a_file_of_extra_variables_that_redirects_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "more.yml"
    file.write_text(text)

    with pytest.raises(ClusterctlError, match="where or how all machines are reached"):
        require_no_redirection([f"@{file}"])


def test_a_file_of_extra_variables_that_hides_a_name_under_many_merges_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "more.yml"
    file.write_text("{<<: " * 60 + "{ansible_connection: local}" + "}" * 60)

    with pytest.raises(ClusterctlError, match="50 deep"):
        require_no_redirection([f"@{file}"])


def test_an_encrypted_file_of_extra_variables_is_opened_and_read_too(tmp_path: Path) -> None:
    (tmp_path / "word").write_text("open sesame\n")
    file = tmp_path / "more.yml"
    file.write_text("ansible_connection: local\n")
    vault = ["--vault-password-file", str(tmp_path / "word")]
    command = [str(Path(sys.executable).parent / "ansible-vault"), "encrypt", *vault, str(file)]
    subprocess.run(command, check=True, capture_output=True)

    with pytest.raises(ClusterctlError, match="where or how all machines are reached"):
        require_no_redirection([f"@{file}"], vault=vault)
    with pytest.raises(ClusterctlError, match="encrypted"):
        require_no_redirection([f"@{file}"])


def test_variables_of_roles_are_what_extra_variables_are_for() -> None:
    for name in ("slurm_version", "preflight_lock_timeout", "node_cpus", "ansible_become_password"):
        assert not redirects(name)


@pytest.mark.parametrize(
    "address",
    [
        *(
            "-oProxyCommand=touch",
            "'fe80::1%eth0 State=DOWN'",
            "'fe80::1%$(id)'",
            "'fe80::1%eth0;id'",
            "ssh://10.0.0.9",
        ),
        *("root@10.0.0.9", "224.0.0.1", "'{{ lookup(1) }}'"),
    ],
)
def test_an_address_that_is_more_than_an_address_is_refused(site: Path, address: str) -> None:
    site.write_text(INVENTORY.replace("10.0.0.6", address))

    assert "node2" in refusal("check", str(site))


def test_an_unknown_node_variable_is_refused_with_a_suggestion(site: Path) -> None:
    site.write_text(INVENTORY.replace("node_cpus=4", "node_cpus=4\nnode_state=CLOUD"))

    assert "there is no variable node_state" in (told := refusal("check", str(site)))
    assert "what else Slurm reads of a node is node_parameters" in told


def test_machines_of_no_group_of_ours_are_left_alone_and_said_so(site: Path) -> None:
    site.write_text(INVENTORY + "[web]\nweb1 ansible_host=10.0.0.99\n")

    result = call("check", str(site))
    limited = refusal("provision", str(site), "--limit", "web1")

    assert result.exit_code == 0
    assert "web1 left alone" in result.stderr
    assert "none of the cluster's groups" in limited


@pytest.mark.parametrize(
    "text", ["n[1:99999999]", "n[1:9999][1:9999]", "n[001:099999999:2]", "n[1-99999999]", "n[1,5-99999999]"]
)
def test_a_range_that_no_one_can_mean_is_refused_before_it_is_expanded(site: Path, text: str) -> None:
    site.write_text(INVENTORY.replace("node2", text))
    with pytest.raises(ClusterctlError, match="more than 65536 names"):
        hostlist.require_possible(text, "--limit")
    with pytest.raises(ClusterctlError, match=r"line 5: .* more than 65536 names"):
        require_plain(site)


@pytest.mark.parametrize("text", ["n[1:65536]", "n[01:16]", "n[a:z]", "x=[1,2,3]", "10.0.0.[1:9]", "n[99999:1]"])
def test_ranges_that_people_write_pass(text: str) -> None:
    hostlist.require_possible(text, "here")


def test_a_checkouts_own_configuration_is_nothing_to_warn_about(tmp_path: Path) -> None:
    for name in ("provision/ansible_env.py", "playbooks/site.yml", "ansible.cfg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("# another version\n")

    assert ignored_settings({}, tmp_path) == []
