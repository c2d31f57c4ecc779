"""Which words stand in lists of words of slurm.conf, by release of Slurm, from its manual page and its code.

Made by ``scripts/slurm-parameters REPOSITORY words``; a word stands without its value, and with ``=#`` where that is a
number. ``word`` is in all releases from 22.05 on, ``word:24.11-`` since one, ``word:-23.11`` until one.
"""

WORDS = {
    "AccountingStorageParameters": """
        max_step_records=#:24.05- SSL_CA SSL_CAPATH SSL_CERT SSL_CIPHER SSL_KEY
    """,
    "AccountingStoreFlags": """
        job_comment job_env job_extra:23.02- job_script no_stdio:24.05-
    """,
    "AuthAltParameters": """
        disable_token_creation jwks jwt_key max_token_lifespan=# use_jwt_client_ids:26.05-
        use_jwt_client_ids_only:26.05- userclaimfield:23.02-
    """,
    "AuthInfo": """
        cred_expire disable_sack:23.11- socket ttl use_client_ids:23.11- userclaimfield:23.02-
    """,
    "BcastParameters": """
        Compression DestDir send_libs
    """,
    "CertgenParameters": """
        certgen_script:25.05- keygen_script:25.05-
    """,
    "CertmgrParameters": """
        certificate_renewal_period:24.11- generate_csr_script:24.11- get_node_cert_key_script:25.05-
        get_node_token_script:24.11- sign_csr_script:24.11- single_use_tokens:25.05- validate_node_script:24.11-
    """,
    "CliFilterPlugins": """
        lua none:-23.02 syslog user_defaults
    """,
    "CommunicationParameters": """
        block_null_hash block_zero_hash CheckGhalQuiesce:-23.11 disable_http:25.11- DisableIPv4 EnableIPv6
        getnameinfo_cache_timeout:23.02- host_unreach_retry_count=#:25.05- keepaliveinterval=# keepaliveprobes=#
        keepalivetime=# NoAddrCache NoCtldInAddrAny NoInAddrAny
    """,
    "DependencyParameters": """
        disable_remote_singleton kill_invalid_depend max_depend_depth=#
    """,
    "FederationParameters": """
        fed_display
    """,
    "JobAcctGatherParams": """
        DisableGPUAcct:23.02- no_file_cache:25.11- NoShare NoShared OverMemoryKill UsePss
    """,
    "JobSubmitPlugins": """
        all_partitions cray_aries:-23.11 defaults logging lua partition pbs require_timelimit throttle
    """,
    "LaunchParameters": """
        batch_step_set_cpu_freq cray_net_exclusive disable_send_gids enable_nss_slurm
        interactive_step_set_cpu_freq:25.11- lustre_no_flush mem_sort:-25.11 mpir_use_nodeaddr slurmstepd_memlock
        slurmstepd_memlock_all srun_exclusive_allocation:26.05- test_exec ulimit_pam_adopt:23.02-
        use_interactive_step
    """,
    "MpiParams": """
        disable_slurm_hydra_bootstrap:24.05- ports
    """,
    "PreemptParameters": """
        min_exempt_priority=#:23.02- reclaim_licenses:23.02- reorder_count=#:23.02- send_user_signal:23.02-
        strict_order:23.02- suspend_grace_time:23.11- youngest_first:23.02-
    """,
    "PriorityFlags": """
        ACCRUE_ALWAYS CALCULATE_RUNNING DEPTH_OBLIVIOUS INCR_ONLY MAX_TRES MAX_TRES_GRES:25.05- NO_FAIR_TREE
        NO_NORMAL_ALL NO_NORMAL_ASSOC NO_NORMAL_PART NO_NORMAL_QOS NO_NORMAL_TRES SMALL_RELATIVE_TO_TIME
    """,
    "PrivateData": """
        accounts events jobs nodes partitions reservations usage users
    """,
    "PropagateResourceLimits": """
        ALL AS CORE CPU DATA FSIZE MEMLOCK NOFILE NONE NPROC RSS STACK
    """,
    "ReconfigFlags": """
        KeepPartInfo KeepPartState KeepPowerSaveSettings:23.02-
    """,
    "SchedulerParameters": """
        allow_zero_lic assoc_limit_stop balance_interval:-23.11 batch_sched_delay=# bb_array_stage_cnt=#
        bf_allow_magnetic_slot:24.11- bf_busy_nodes bf_continue bf_hetjob_immediate bf_hetjob_prio bf_interval=#
        bf_job_part_count_reserve=# bf_licenses bf_max_job_array_resv=# bf_max_job_assoc=# bf_max_job_part=#
        bf_max_job_start=# bf_max_job_test=# bf_max_job_user=# bf_max_job_user_part=# bf_max_time=#
        bf_min_age_reserve=# bf_min_prio_reserve=# bf_node_space_size=# bf_one_resv_per_job bf_resolution=#
        bf_running_job_reserve bf_topopt_enable:24.11- bf_topopt_iterations:24.11- bf_window=# bf_window_linear=#
        bf_yield_interval=# bf_yield_rpc_cnt:25.05- bf_yield_rpc_count:25.05- bf_yield_sleep=# build_queue_timeout=#
        cap_watts:-23.11 capmc_path:-23.11 correspond_after_task_cnt=# decrease_rate:-23.11 default_queue_depth=#
        defer defer_batch:23.02- delay_boot=# disable_hetero_steps disable_hetjob_steps disable_job_shrink
        enable_hetjob_steps:23.02- enable_job_state_cache:23.11-25.11 enable_user_top extra_constraints:23.11-
        get_timeout:-23.11 ignore_constraint_validation:24.11- Ignore_NUMA ignore_prefer_validation
        increase_rate:-23.11 interval job_level:-23.11 job_no_level:-23.11 jobs_per_user_per_hour
        lower_threshold:-23.11 max_array_tasks max_job_bf max_rpc_cnt=# max_rpc_count max_sched_time=#
        max_script_size=# max_submit_line_size=#:23.11- max_switch_wait=# no_backup_scheduling no_env_cache:-24.11
        nohold_on_prolog_fail pack_serial_at_end partition_job_depth=# permit_job_expansion preempt_reorder_count
        preempt_strict_order preempt_youngest_first recent_job:-23.11 reduce_completing_frag requeue_delay:25.11-
        requeue_on_resume_failure:25.05- requeue_setup_env_fail:-24.11 salloc_wait_nodes sbatch_wait_nodes
        sched_interval=# sched_max_job_start=# sched_min_interval=# set_timeout:-23.11 set_watts:-23.11
        spec_cores_first step_retry_count=# step_retry_time=# time_min_as_soft_limit:23.11- upper_threshold:-23.11
        whole_hetjob whole_pack
    """,
    "ScronParameters": """
        enable explicit_scancel:23.02-
    """,
    "SelectTypeParameters": """
        CR_Core CR_CORE_DEFAULT_DIST_BLOCK CR_Core_Memory CR_CPU CR_CPU_Memory CR_LLN CR_Memory
        CR_NO_DIST_TOPO_BLOCK:26.05- CR_ONE_TASK_PER_CORE CR_Pack_Nodes CR_Socket CR_Socket_Memory
        ENFORCE_BINDING_GRES:23.11- LL_SHARED_GRES:23.11- MULTIPLE_SHARING_GRES_PJ:23.11-
        ONE_TASK_PER_SHARING_GRES:23.11- OTHER_CONS_RES:-23.11 OTHER_CONS_TRES:-23.11
    """,
    "SlurmctldParameters": """
        allow_user_triggers cloud_dns cloud_reg_addrs conmgr_connect_timeout=#:24.11-
        conmgr_max_connections=#:24.11- conmgr_quiesce_timeout=#:25.05- conmgr_read_timeout=#:24.11-
        conmgr_threads=#:23.02- conmgr_use_poll:24.11- conmgr_wait_write_delay=#:24.11-
        conmgr_write_timeout=#:24.11- disable_triggers:23.11- enable_async_reply:25.11- enable_configless
        enable_expedited_requeue:25.11- enable_job_state_cache:23.11-25.11 enable_rpc_queue enable_stepmgr:24.05-
        health_check_report:26.05- idle_on_node_suspend max_dbd_msg_action max_powered_nodes:24.05-
        no_quick_restart:23.11- node_reg_mem_percent=# power_save_interval power_save_min_interval
        preempt_send_user_signal reboot_from_controller reconfig_on_restart:25.11- rl_bucket_size:23.02-
        rl_enable:23.02- rl_log_freq:23.11- rl_refill_period:23.02- rl_refill_rate:23.02- rl_table_size:23.02-
        user_resv_delete validate_nodeaddr_threads:23.02-
    """,
    "SlurmdParameters": """
        allow_ecores:23.02- config_override config_overrides conmgr_connect_timeout=#:24.11-
        conmgr_max_connections=#:24.11- conmgr_quiesce_timeout=#:25.05- conmgr_read_timeout=#:24.11-
        conmgr_threads=#:23.02- conmgr_use_poll:24.11- conmgr_wait_write_delay=#:24.11-
        conmgr_write_timeout=#:24.11- contain_spank:24.05- l3cache_as_socket numa_node_as_socket shutdown_on_reboot
    """,
    "SwitchParameters": """
        acs adjust_limits:23.02- cts def_ destroy_retries:24.11- eqs fm_auth:23.11- fm_authdir:23.11-
        fm_mtls_ca:25.05- fm_mtls_cert:25.05- fm_mtls_key:25.05- fm_mtls_url:25.05- fm_url:23.11-
        hwcoll_addrs_per_job:23.11- hwcoll_num_nodes:23.11- imex_channel_count:24.05- imex_dev_major:24.05-
        jlope_auth:23.02- jlope_authdir:23.02- jlope_url:23.02- job_vni les max_ nic_distribution_count:25.11-
        no_adjust_limits:23.02- ptes res_ single_node_vni tcs tgqs tles txqs vnis
    """,
    "TaskPluginParam": """
        Autobind Cores None OOMKillStep:24.11- SlurmdOffSpec SlurmdSpecOverride:25.05- Sockets Threads Verbose
    """,
    "TLSParameters": """
        ca_cert_file:25.05- ctld_cert_file:25.05- ctld_cert_key_file:25.05- load_system_certificates:25.05-
        psk_file:24.05-24.11 psk_identity:24.05-24.11 restd_cert_file:25.05- restd_cert_key_file:25.05-
        sackd_cert_file:25.05- sackd_cert_key_file:25.05- security_policy_version:24.05- slurmd_cert_file:25.05-
        slurmd_cert_key_file:25.05-
    """,
    "TopologyParam": """
        BlockAsNodeRank:25.11- dragonfly routepart:23.11- routetree:23.11- SwitchAsNodeRank:23.02-
        TopoMaxSizeUnroll=#:24.11- TopoOptional
    """,
    "X11Parameters": """
        home_xauthority
    """,
}
