"""Which plugins of each type Slurm's source has, by release. Made by ``scripts/slurm-parameters REPOSITORY plugins``.

``type/name`` is in all releases from 22.05 on, ``type/name:24.11-`` since one, ``type/name:-23.11`` until one.
"""

PLUGINS = {
    "accounting_storage": """
        accounting_storage/ctld_relay:24.05- accounting_storage/mysql accounting_storage/none:-23.02
        accounting_storage/slurmdbd
    """,
    "acct_gather_energy": """
        acct_gather_energy/gpu acct_gather_energy/ibmaem acct_gather_energy/ipmi acct_gather_energy/none:-23.02
        acct_gather_energy/pm_counters acct_gather_energy/rapl acct_gather_energy/xcc
    """,
    "acct_gather_filesystem": """
        acct_gather_filesystem/lustre acct_gather_filesystem/none:-23.02
    """,
    "acct_gather_interconnect": """
        acct_gather_interconnect/none:-23.02 acct_gather_interconnect/ofed acct_gather_interconnect/sysfs
    """,
    "acct_gather_profile": """
        acct_gather_profile/hdf5 acct_gather_profile/influxdb acct_gather_profile/none:-23.02
    """,
    "auth": """
        auth/jwt auth/munge auth/none auth/slurm:23.11-
    """,
    "burst_buffer": """
        burst_buffer/datawarp burst_buffer/lua
    """,
    "certgen": """
        certgen/script:25.05-
    """,
    "certmgr": """
        certmgr/script:24.11-
    """,
    "hash": """
        hash/k12 hash/sha3:24.05-
    """,
    "http_parser": """
        http_parser/libhttp_parser:25.11- http_parser/llhttp_parser:26.05-
    """,
    "job_container": """
        job_container/cncu:-23.11 job_container/none:-23.02 job_container/tmpfs:-25.05
    """,
    "jobacct_gather": """
        jobacct_gather/cgroup jobacct_gather/linux jobacct_gather/none:-23.02
    """,
    "jobcomp": """
        jobcomp/elasticsearch jobcomp/filetxt jobcomp/kafka:23.02- jobcomp/lua jobcomp/mysql jobcomp/none:-23.02
        jobcomp/script
    """,
    "mcs": """
        mcs/account mcs/group mcs/label:24.11- mcs/none:-23.02 mcs/user
    """,
    "metrics": """
        metrics/openmetrics:25.11-
    """,
    "mpi": """
        mpi/cray_shasta mpi/none:-23.02 mpi/pmi2 mpi/pmix
    """,
    "namespace": """
        namespace/linux:25.11- namespace/tmpfs:25.11-
    """,
    "node_features": """
        node_features/helpers node_features/knl_cray:-23.11 node_features/knl_generic:-25.05
    """,
    "preempt": """
        preempt/none:-23.02 preempt/partition_prio preempt/qos
    """,
    "prep": """
        prep/script
    """,
    "priority": """
        priority/basic priority/multifactor
    """,
    "proctrack": """
        proctrack/cgroup proctrack/cray_aries:-23.11 proctrack/linuxproc proctrack/pgid
    """,
    "sched": """
        sched/backfill sched/builtin
    """,
    "select": """
        select/cons_res:-23.02 select/cons_tres select/cray_aries:-23.11 select/linear
    """,
    "site_factor": """
        site_factor/example:23.11- site_factor/none:-23.02
    """,
    "switch": """
        switch/cray_aries:-23.11 switch/hpe_slingshot switch/none:-23.02 switch/nvidia_imex:24.05-
    """,
    "task": """
        task/affinity task/cgroup task/cray_aries:-23.11 task/none:-23.02
    """,
    "tls": """
        tls/none:24.05- tls/s2n:24.05-
    """,
    "topology": """
        topology/3d_torus:-24.11 topology/block:23.11- topology/default:23.11-24.11 topology/flat:25.05-
        topology/hypercube:-23.02 topology/none:-23.02 topology/ring:26.05- topology/torus3d:26.05- topology/tree
    """,
    "url_parser": """
        url_parser/internal:26.05-
    """,
}
