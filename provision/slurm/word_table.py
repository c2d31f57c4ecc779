"""Which words stand in lists of words of slurm.conf, in any release of Slurm, from its manual page and its code.

Made by ``scripts/slurm-parameters REPOSITORY words``; a word stands without its value, and with ``=#`` where that is a
number.
"""

WORDS = {
    "AccountingStorageParameters": """
        max_step_records=# SSL_CA SSL_CAPATH SSL_CERT SSL_CIPHER SSL_KEY
    """,
    "AccountingStoreFlags": """
        job_comment job_env job_extra job_script no_stdio
    """,
    "AuthAltParameters": """
        disable_token_creation jwks jwt_key max_token_lifespan=# use_jwt_client_ids use_jwt_client_ids_only
        userclaimfield
    """,
    "AuthInfo": """
        cred_expire disable_sack socket ttl use_client_ids userclaimfield
    """,
    "BcastParameters": """
        Compression DestDir send_libs
    """,
    "CertgenParameters": """
        certgen_script keygen_script
    """,
    "CertmgrParameters": """
        certificate_renewal_period generate_csr_script get_node_cert_key_script get_node_token_script
        sign_csr_script single_use_tokens validate_node_script
    """,
    "CliFilterPlugins": """
        lua none syslog user_defaults
    """,
    "CommunicationParameters": """
        block_null_hash block_zero_hash CheckGhalQuiesce disable_http DisableIPv4 EnableIPv6
        getnameinfo_cache_timeout host_unreach_retry_count=# keepaliveinterval=# keepaliveprobes=# keepalivetime=#
        NoAddrCache NoCtldInAddrAny NoInAddrAny
    """,
    "DependencyParameters": """
        disable_remote_singleton kill_invalid_depend max_depend_depth=#
    """,
    "FederationParameters": """
        fed_display
    """,
    "JobAcctGatherParams": """
        DisableGPUAcct no_file_cache NoShare NoShared OverMemoryKill UsePss
    """,
    "JobSubmitPlugins": """
        all_partitions cray_aries defaults logging lua partition pbs require_timelimit throttle
    """,
    "LaunchParameters": """
        batch_step_set_cpu_freq cray_net_exclusive disable_send_gids enable_nss_slurm interactive_step_set_cpu_freq
        lustre_no_flush mem_sort mpir_use_nodeaddr slurmstepd_memlock slurmstepd_memlock_all
        srun_exclusive_allocation test_exec ulimit_pam_adopt use_interactive_step
    """,
    "MpiParams": """
        disable_slurm_hydra_bootstrap ports
    """,
    "PreemptParameters": """
        min_exempt_priority=# reclaim_licenses reorder_count=# send_user_signal strict_order suspend_grace_time
        youngest_first
    """,
    "PriorityFlags": """
        ACCRUE_ALWAYS CALCULATE_RUNNING DEPTH_OBLIVIOUS INCR_ONLY MAX_TRES MAX_TRES_GRES NO_FAIR_TREE NO_NORMAL_ALL
        NO_NORMAL_ASSOC NO_NORMAL_PART NO_NORMAL_QOS NO_NORMAL_TRES SMALL_RELATIVE_TO_TIME
    """,
    "PrivateData": """
        accounts events jobs nodes partitions reservations usage users
    """,
    "PropagateResourceLimits": """
        ALL AS CORE CPU DATA FSIZE MEMLOCK NOFILE NONE NPROC RSS STACK
    """,
    "ReconfigFlags": """
        KeepPartInfo KeepPartState KeepPowerSaveSettings
    """,
    "SchedulerParameters": """
        allow_zero_lic assoc_limit_stop balance_interval batch_sched_delay=# bb_array_stage_cnt=#
        bf_allow_magnetic_slot bf_busy_nodes bf_continue bf_hetjob_immediate bf_hetjob_prio bf_interval=#
        bf_job_part_count_reserve=# bf_licenses bf_max_job_array_resv=# bf_max_job_assoc=# bf_max_job_part=#
        bf_max_job_start=# bf_max_job_test=# bf_max_job_user=# bf_max_job_user_part=# bf_max_time=#
        bf_min_age_reserve=# bf_min_prio_reserve=# bf_node_space_size=# bf_one_resv_per_job bf_resolution=#
        bf_running_job_reserve bf_topopt_enable bf_topopt_iterations bf_window=# bf_window_linear=#
        bf_yield_interval=# bf_yield_rpc_cnt bf_yield_rpc_count bf_yield_sleep=# build_queue_timeout=# cap_watts
        capmc_path correspond_after_task_cnt=# decrease_rate default_queue_depth=# defer defer_batch delay_boot=#
        disable_hetero_steps disable_hetjob_steps disable_job_shrink enable_hetjob_steps enable_job_state_cache
        enable_user_top extra_constraints get_timeout ignore_constraint_validation Ignore_NUMA
        ignore_prefer_validation increase_rate interval job_level job_no_level jobs_per_user_per_hour
        lower_threshold max_array_tasks max_job_bf max_rpc_cnt=# max_rpc_count max_sched_time=# max_script_size=#
        max_submit_line_size=# max_switch_wait=# no_backup_scheduling no_env_cache nohold_on_prolog_fail
        pack_serial_at_end partition_job_depth=# permit_job_expansion preempt_reorder_count preempt_strict_order
        preempt_youngest_first recent_job reduce_completing_frag requeue_delay requeue_on_resume_failure
        requeue_setup_env_fail salloc_wait_nodes sbatch_wait_nodes sched_interval=# sched_max_job_start=#
        sched_min_interval=# set_timeout set_watts spec_cores_first step_retry_count=# step_retry_time=#
        time_min_as_soft_limit upper_threshold whole_hetjob whole_pack
    """,
    "ScronParameters": """
        enable explicit_scancel
    """,
    "SelectTypeParameters": """
        CR_Core CR_CORE_DEFAULT_DIST_BLOCK CR_Core_Memory CR_CPU CR_CPU_Memory CR_LLN CR_Memory
        CR_NO_DIST_TOPO_BLOCK CR_ONE_TASK_PER_CORE CR_Pack_Nodes CR_Socket CR_Socket_Memory ENFORCE_BINDING_GRES
        LL_SHARED_GRES MULTIPLE_SHARING_GRES_PJ ONE_TASK_PER_SHARING_GRES OTHER_CONS_RES OTHER_CONS_TRES
    """,
    "SlurmctldParameters": """
        allow_user_triggers cloud_dns cloud_reg_addrs conmgr_connect_timeout=# conmgr_max_connections=#
        conmgr_quiesce_timeout=# conmgr_read_timeout=# conmgr_threads=# conmgr_use_poll conmgr_wait_write_delay=#
        conmgr_write_timeout=# disable_triggers enable_async_reply enable_configless enable_expedited_requeue
        enable_job_state_cache enable_rpc_queue enable_stepmgr health_check_report idle_on_node_suspend
        max_dbd_msg_action max_powered_nodes no_quick_restart node_reg_mem_percent=# power_save_interval
        power_save_min_interval preempt_send_user_signal reboot_from_controller reconfig_on_restart rl_bucket_size
        rl_enable rl_log_freq rl_refill_period rl_refill_rate rl_table_size user_resv_delete
        validate_nodeaddr_threads
    """,
    "SlurmdParameters": """
        allow_ecores config_override config_overrides conmgr_connect_timeout=# conmgr_max_connections=#
        conmgr_quiesce_timeout=# conmgr_read_timeout=# conmgr_threads=# conmgr_use_poll conmgr_wait_write_delay=#
        conmgr_write_timeout=# contain_spank l3cache_as_socket numa_node_as_socket shutdown_on_reboot
    """,
    "SwitchParameters": """
        acs adjust_limits cts def_ destroy_retries eqs fm_auth fm_authdir fm_mtls_ca fm_mtls_cert fm_mtls_key
        fm_mtls_url fm_url hwcoll_addrs_per_job hwcoll_num_nodes imex_channel_count imex_dev_major jlope_auth
        jlope_authdir jlope_url job_vni les max_ nic_distribution_count no_adjust_limits ptes res_ single_node_vni
        tcs tgqs tles txqs vnis
    """,
    "TaskPluginParam": """
        Autobind Cores None OOMKillStep SlurmdOffSpec SlurmdSpecOverride Sockets Threads Verbose
    """,
    "TLSParameters": """
        ca_cert_file ctld_cert_file ctld_cert_key_file load_system_certificates psk_file psk_identity
        restd_cert_file restd_cert_key_file sackd_cert_file sackd_cert_key_file security_policy_version
        slurmd_cert_file slurmd_cert_key_file
    """,
    "TopologyParam": """
        BlockAsNodeRank dragonfly routepart routetree SwitchAsNodeRank TopoMaxSizeUnroll=# TopoOptional
    """,
    "X11Parameters": """
        home_xauthority
    """,
}
