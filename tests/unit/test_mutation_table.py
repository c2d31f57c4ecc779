"""All that a role manages and judges is in a row of the mutation table, or it is said where it is proven."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import managed_things
import pytest

from provision import content
from provision.judge import (
    base_system,
    cluster_users,
    ddp_ready,
    engine,
    hardware,
    images,
    job_docker,
    job_images,
    munge,
    nfs_server,
    preflight,
    road,
    shared_storage,
    slurm_accounts,
    slurm_client,
    slurm_conf,
    slurm_database,
    slurm_image,
    slurm_running,
    users_before,
)

sys.path.insert(0, str(content.ROOT / "tests/lab"))
from mutation import Row
from mutations import BATCHES, REFUSED

#: Machines of the lab, as far as the roles' data goes.
INVENTORY = """
[slurm_controller]
head ansible_host=10.0.0.1
[slurm_compute]
node1 ansible_host=10.0.0.2
[slurm_login]
login1 ansible_host=10.0.0.3
[slurm_database]
head
[all:vars]
cluster_name=lab
cluster_groups=[{'name': 'physics', 'gid': 3001}, {'name': 'biology', 'gid': 3002}]
cluster_users=[{'name': 'ada', 'uid': 2001}, {'name': 'ben', 'uid': 2002}, {'name': 'grace', 'uid': 2003}]
cluster_test_user=grace
container_images_mirrors=['node1']
cluster_mounts=[{'path': '/home', 'fstype': 'present'}, {'path': '/scratch', 'fstype': 'local'}]
"""

#: Roles whose rows need a made-up machine, each with its scenario of Molecule.
MADE_UP = {
    "nvidia_driver": "nvidia_driver",
    "nvidia_mig": "nvidia_mig",
    "cuda_toolkit": "cuda_toolkit",
    "nvidia_containers": "gpu_containers",
    "rdma_userspace": "rdma_userspace",
    "gpudirect_rdma": "gpudirect_rdma",
}

#: No lab of every day has a host of monitoring: tests/lab/slurm/test_monitoring.py breaks what these leave.
WATCHING = {"machine_metrics", "monitoring"}

#: The judges that the other roles have beside their data.
SUBJECTS = (
    base_system.SUBJECT, nfs_server.SUBJECT, shared_storage.BEFORE, shared_storage.SUBJECT,
    users_before.SUBJECT, cluster_users.SUBJECT,
    engine.BEFORE, engine.SUBJECT, images.SUBJECT, munge.MACHINE, slurm_image.SUBJECT,
    slurm_client.SUBJECT, slurm_conf.SUBJECT,
    slurm_database.SUBJECT, slurm_accounts.SUBJECT, slurm_running.SUBJECT, ddp_ready.SUBJECT, preflight.SUBJECT,
    hardware.SUBJECT, job_images.BEFORE, job_images.SUBJECT,
    job_docker.BEFORE, job_docker.SUBJECT,
)  # fmt: skip


#: What the lab cannot show, or shows in another test, by file and claim: a check, or a check and its thing.
ELSEWHERE = {
    "tests/unit/test_preflight.py": {
        # A container has its computer's clock, and may not set it.
        "a_clock_is_judged_by_what_is_certain": ["base_system.clock", "preflight.clock"],
        "a_clock_without_a_keeper_is_told": ["base_system.time_service"],
        # All machines of a lab share the computer's disk.
        "a_file_system_that_is_nearly_full_warns": ["base_system.space"],
        # Refused before anything is done, as preflight.hostname.
        "another_name_than_the_inventorys_is_a_failure_of_what_was_prepared": ["base_system.hostname"],
        # What no machine of the lab can lose or be.
        "what_is_wrong_is_named": [
            "preflight.python", "preflight.system", "preflight.systemd", "preflight.root", "preflight.packages",
            "preflight.own_name",
        ],
        "cgroup_v1_is_refused_before_anything_changes_unless_the_site_lets_it_in": ["preflight.cgroup"],
        "a_kernel_matters_where_jobs_have_a_tmp_of_their_own": ["preflight.kernel"],
        # Settings of the computer's kernel, which all labs share.
        "user_namespaces_matter_where_jobs_run": ["preflight.user_namespaces"],
        # No machine of the lab has a firewall that is up.
        "a_proxy_that_takes_no_questions_is_named_before_anything_is_fetched": ["preflight.proxy"],
        "a_firewall_is_refused_before_and_named_after": ["base_system.firewall", "preflight.firewall"],
    },
    # Every machine of the lab has the shells that its users have.
    "tests/unit/test_judge_cluster_users.py": {
        "a_shell_that_is_not_there_is_refused": ["cluster_users.shells"],
        # A mistake of the inventory's, not of a machine's.
        "who_is_in_an_account_and_known_to_nobody_is_refused_before_anything_is_changed": ["cluster_users.accounts"],
        # What another file of sshd's says, nobody here mends.
        "keys_count_only_where_sshd_reads_them": ["cluster_users.logins"],
    },
    # It warns, and nothing is repaired: who is taken out of the inventory by hand.
    "tests/unit/test_account_changes.py": {
        "who_is_gone_from_the_machines_and_still_has_an_account_is_named_with_the_line_that_removes_them": [
            "slurm_accounts.gone"
        ],
    },
    # No machine of the lab has GPUs that Slurm could detect.
    "tests/unit/test_gpu_topology.py": {
        "a_machine_that_slurm_would_drain_fails_where_its_affinity_is_not_declared": ["hardware.gpu_affinity"],
    },
    "tests/unit/test_hardware.py": {
        "another_number_of_cpus_fails_with_both_values": [
            "hardware.cpus", "hardware.sockets", "hardware.cores_per_socket", "hardware.threads_per_core",
            "hardware.cgroup_version",
        ],
        "gpus_that_a_machine_answers_and_nobody_can_read_are_unknown": ["hardware.gpu_driver"],
        "a_gpu_with_an_unknown_id_is_unknown_until_its_type_is_declared": ["hardware.gpu_id"],
        "a_gpu_that_fell_off_the_bus_is_named": ["hardware.gpus_on_bus"],
    },
    # Of machines that are not provisioned yet.
    "tests/lab/test_refusals.py": {
        "a_package_manager_that_is_busy_is_named": ["preflight.package_lock"],
        "a_full_disk_on_the_controller_is_found_before_anything_changes": ["preflight.disk_space"],
    },
    "tests/lab/test_access.py": {
        "more_memory_than_the_machine_has_is_refused_and_nothing_is_changed": ["hardware.real_memory"],
    },
    "tests/unit/test_judge_engine.py": {
        # Refused before anything is done: what an engine of a site's own has, or says.
        "nothing_that_the_engine_has_is_hidden": ["engine.kept"],
        "what_slurm_could_not_live_with_is_refused_with_the_variable_that_decides": ["engine.configuration"],
        "a_network_of_the_sites_that_has_a_machines_address_is_refused": ["engine.addresses"],
        # Only a site's own registry asks for one.
        "a_login_is_compared_by_a_hash_and_the_password_is_in_no_check": ["images.login"],
        # A warning: images come from the controller then (test_image_mirrors of the lab).
        "a_mirror_that_does_not_answer_is_a_warning_that_names_it_because_the_controller_answers_instead": [
            "images.mirror",
        ],
    },
    # A package of Debian 13; the lab's machines have 12.
    "tests/unit/test_container_engine.py": {
        "an_engine_that_is_there_is_used_as_it_is": ["container_engine.packages docker-cli"],
    },
    # Another Slurm's: nothing here gives its files another number.
    "tests/unit/test_judge_slurm_client.py": {
        "slurms_user_has_the_number_that_the_image_has": ["slurm_client.user"],
    },
    # A container has no kernel of its own that could mount or export by NFS.
    "tests/unit/test_judge_shared_storage.py": {
        # No computer here has Lustre.
        "a_machine_without_lustres_client_is_refused_before_anything_is_changed": ["shared_storage.client"],
        "what_is_not_mounted_as_declared_is_named": ["shared_storage.mounts"],
        "what_a_mount_would_hide_is_refused_before_anything_is_changed": ["shared_storage.hides"],
        "options_that_lose_data_or_time_are_worth_a_warning": ["shared_storage.options"],
        "a_shared_file_system_that_is_nearly_full_warns": ["shared_storage.space"],
        # A warning, and what another inventory asks for; test_shared_storage of the lab has it unmounted.
        "what_an_earlier_inventory_has_mounted_is_named_and_goes_only_when_that_is_asked": [
            "shared_storage.undeclared", "shared_storage.left",
        ],
        "a_directory_that_a_client_cannot_mount_is_named_with_the_client": ["nfs_server.exports"],
    },
    # The lab declares none: each takes a provision.
    "tests/lab/test_job_images.py": {
        "images_of_the_site_are_on_all_nodes_and_go_when_they_are_taken_out_and_nobody_runs_them": [
            "job_images.sources", "job_images.built", "job_images.stored", "job_images.collected",
        ],
    },
    # The lab declares none of it.
    "tests/lab/test_job_docker.py": {
        "what_is_taken_out_of_the_inventory_goes_and_the_engine_forgets_its_socket": [
            "job_docker.files /etc/systemd/system/clusterctl-docker.socket",
            "job_docker.files /etc/systemd/system/docker.service.d/clusterctl-jobs.conf",
        ],
        "what_is_broken_is_named_and_mended_alone": [
            "job_docker.socket", "job_docker.swarm", "job_docker.overlay_networks",
        ],
    },
    # What the inventory says, whatever the machine has.
    "tests/unit/test_job_docker.py": {
        "a_machine_as_declared_passes_and_says_what_it_risks": ["job_docker.risk"],
        "what_a_sites_own_runtime_of_containers_risks_is_said": ["job_docker.runtime"],
    },
    # All machines of a lab share the computer's disk.
    "tests/unit/test_judge_slurm_database.py": {
        "a_full_disk_is_named": ["slurm_database.disk"],
    },
    "tests/unit/test_slurm.py": {
        "jobs_count_as_confined_only_where_task_cgroup_is_in_use": ["slurm_conf.confinement"],
    },
    # All labs of a computer share this directory, and what is in it.
    "tests/unit/test_judge_managed.py": {
        "what_is_not_as_declared_is_named": ["container_images.files /var/cache/clusterctl"],
    },
}  # fmt: skip


@cache
def things() -> frozenset[tuple[str, str]]:
    """Return check and name of all that roles manage on machines of the lab."""
    with TemporaryDirectory() as directory:
        file = Path(directory) / "inventory.ini"
        file.write_text(INVENTORY)
        return frozenset(
            (f"{role}.{kind if kind in ('packages', 'services', 'containers') else 'files'}", name)
            for _, constants, templar in managed_things.on_machines(file)
            for role in road.ROLES.keys() - MADE_UP.keys() - WATCHING
            for kind, name, _ in managed_things.of_role(role, constants, templar)
        )


def judged() -> set[tuple[str, str]]:
    """Return the ids of what roles' own judges say, each without a thing."""
    return {(name, "") for subject in SUBJECTS for name in subject.ids}


def elsewhere() -> set[str]:
    """Return what is proven elsewhere."""
    return {name for claims in ELSEWHERE.values() for names in claims.values() for name in names}


def without_a_row(rows: tuple[Row, ...]) -> list[str]:
    """Return what is in none of these rows, and not said to be proven elsewhere."""
    wanted = {f"{check} {thing}".rstrip() for check, thing in things() | judged()}
    shown = {
        f"{check} {thing}".rstrip()
        for check, thing in things() | judged()
        if any(row.is_about(check, thing) for row in rows)
    }
    return sorted(wanted - shown - elsewhere())


ROWS = (*(row for batch in BATCHES for row in (*batch.verified, *batch.rows)), *REFUSED)


@pytest.mark.slow
def test_whatever_is_managed_or_judged_is_in_a_row() -> None:
    assert without_a_row(ROWS) == []


def test_each_check_turns_red_in_a_batch() -> None:
    red = {name for batch in BATCHES for row in batch.rows for name in row.red}
    red |= {name for row in REFUSED for name in row.red}
    wanted = {check for check, _ in things() | judged()} - {name.partition(" ")[0] for name in elsewhere()}

    assert wanted - {name.partition("@")[0] for name in red} == set()
