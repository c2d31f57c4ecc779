/* Copyright the clusterctl authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * srun, sbatch and salloc take pyxis's options, and the tasks run in rootless Podman.
 *
 * The plugin starts nothing. It hands the options to container_task in the task's environment and puts that program in the
 * place of the task's own (argv[0]), so that slurmstepd still does all it does for any task:
 * prologs, TMPDIR, limits, streams, control group, affinity. Slurm's interface: spank(7).
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

SPANK_PLUGIN(container, 1)

#define PROGRAM "/usr/local/libexec/clusterctl/container_task"
#define PREFIX "SLURM_CLUSTERCTL_"
/* Set where a command is given, unset by the plugin on the node: where that one is missing, job_task refuses the task. */
#define ASKED PREFIX "ASKED"

enum { IMAGE, MOUNTS, WORKDIR, NAME, SAVE, MOUNT_HOME, REMAP_ROOT, ENTRYPOINT, ENTRYPOINT_LOG, WRITABLE, READONLY, ENV, UNSHARE, KINDS };
/* As in pyxis's own variables, which are PYXIS_CONTAINER_IMAGE and so on. */
static const char *const kinds[KINDS] = {"IMAGE",      "MOUNTS",     "WORKDIR",        "NAME",     "SAVE",     "MOUNT_HOME", "REMAP_ROOT",
                                         "ENTRYPOINT", "ENTRYPOINT_LOG", "WRITABLE", "READONLY", "ENV",        "UNSHARE"};
#define YES 0x100
#define NO 0x200
static char *given[KINDS];
/* Those that the part of the command line has which is being read; parts are separated by a colon. */
static char in_part[KINDS];

static int take(int val, const char *value, int remote)
{
    (void)remote;
    if (val & (YES | NO))
        value = val & YES ? "yes" : "no";
    if (!value || !*value) {
        slurm_error("container: %s needs a value", kinds[val & 0xff]);
        return -1;
    }
    /* Slurm calls again for what stands on the command line, which wins over a script and the environment. */
    free(given[val & 0xff]);
    given[val & 0xff] = strdup(value);
    in_part[val & 0xff] = 1;
    return 0;
}

static struct spank_option options[] = {
    {"container-image", "[USER@][REGISTRY#]IMAGE[:TAG]|PATH", "run in a container of this image, or of this archive (.tar)", 1, IMAGE, take},
    {"container-mounts", "SRC:DST[:FLAGS][,SRC:DST...]", "mount these in the container; flags are joined by +", 1, MOUNTS, take},
    {"container-workdir", "PATH", "working directory in the container", 1, WORKDIR, take},
    {"container-name", "NAME", "keep the container for later steps of the job, by this name", 1, NAME, take},
    {"container-save", "PATH", "save the container to this archive (.tar) at the step's end", 1, SAVE, take},
    {"container-mount-home", NULL, "mount the home", 0, MOUNT_HOME | YES, take},
    {"no-container-mount-home", NULL, "do not mount the home", 0, MOUNT_HOME | NO, take},
    {"container-remap-root", NULL, "be root in the container", 0, REMAP_ROOT | YES, take},
    {"no-container-remap-root", NULL, "be oneself in the container", 0, REMAP_ROOT | NO, take},
    {"container-entrypoint", NULL, "start by the image's entry point", 0, ENTRYPOINT | YES, take},
    {"no-container-entrypoint", NULL, "do not start by the image's entry point", 0, ENTRYPOINT | NO, take},
    {"container-entrypoint-log", NULL, "what the entry point prints is always shown", 0, ENTRYPOINT_LOG | YES, take},
    {"container-writable", NULL, "the container's files can be changed", 0, WRITABLE | YES, take},
    {"container-readonly", NULL, "the container's files cannot be changed", 0, WRITABLE | NO, take},
    {"container-env", "NAME[,NAME...]", "variables of the job that win over the image's", 1, ENV, take},
    {"container-unshare", "NS[,NS...]", "refused: containers here share the node's network, IPC and name", 1, UNSHARE, take},
    SPANK_OPTIONS_TABLE_END};

/* Return an option's value, or that of pyxis's variable for it; valid until the next call. */
static const char *value_of(spank_t sp, int kind)
{
    static char text[65536];
    char name[64];

    if (given[kind])
        return given[kind];
    snprintf(name, sizeof name, "PYXIS_CONTAINER_%s", kinds[kind]);
    if (spank_remote(sp) != 1)
        return getenv(name);
    return spank_getenv(sp, name, text, sizeof text) == ESPANK_SUCCESS && *text ? text : NULL;
}

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    (void)ac, (void)av;
    spank_context_t context = spank_context();
    if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR && context != S_CTX_REMOTE)
        return 0;
    /* A static table by its name would not be read by sbatch and salloc. */
    for (struct spank_option *option = options; option->name; option++)
        if (spank_option_register(sp, option) != ESPANK_SUCCESS)
            return -1;
    return 0;
}

/* Refuse what an image has no part in. srun goes on where an optional plugin fails; it has no step yet, which would stay. */
static void refuse(const char *what, const char *fix)
{
    slurm_error("container: %s and --container-image do not go together: %s", what, fix);
    exit(1);
}

/* Read the words of this command, each with its end; return the size. */
static size_t own_words(char *line, size_t room)
{
    FILE *stream = fopen("/proc/self/cmdline", "r");
    size_t size = stream ? fread(line, 1, room - 1, stream) : 0;

    line[size] = '\0';
    if (stream)
        fclose(stream);
    return size;
}

/* Look for such words before the program, where Slurm has stopped reading (optind). Called once for each part. */
static void refuse_words(void)
{
    static int begins; /* the word before a part's first: srun itself, or the colon */
    char line[65536], *word = line, *end = line + own_words(line, sizeof line);
    int part = begins, program = begins + optind;

    if (begins < 0)
        return;
    begins = -1;
    for (int i = 0; word < end; i++, word += strlen(word) + 1) {
        if (i >= program && !strcmp(word, ":")) {
            begins = i;
            return;
        }
        if (i <= part || i >= program)
            continue;
        /* Its tasks have other words, which no plugin sees. */
        if (!strncmp(word, "--mu", 4))
            refuse("--multi-prog", "start the programs by a script in the image");
        if (!strcmp(word, "--bcast") || !strncmp(word, "--bcast=", 8))
            refuse("--bcast", "the image has the program, and srun would send the one of this machine");
    }
}

/* srun hands one set of options on for all parts of its command line: refuse parts that differ. */
static void require_same(void)
{
    static char *of_first[KINDS];
    static int parts;

    for (int kind = 0; kind < KINDS; kind++) {
        const char *now = in_part[kind] ? given[kind] : "", *before = of_first[kind] ? of_first[kind] : "";
        if (parts && strcmp(now, before)) {
            slurm_error("container: %s differs in the parts of this command, and all would get the last one's: give all parts the same, or "
                        "start each by an srun of its own (--het-group=N in a heterogeneous job)",
                        kinds[kind]);
            exit(1);
        }
        if (!parts && *now)
            of_first[kind] = strdup(now);
        in_part[kind] = 0;
    }
    parts++;
}

/* Where the command is given: have a node without this plugin refuse it. */
int slurm_spank_init_post_opt(spank_t sp, int ac, char **av)
{
    (void)ac, (void)av;
    int here = spank_context() == S_CTX_LOCAL;

    if (!here && spank_context() != S_CTX_ALLOCATOR)
        return 0;
    if (here)
        require_same();
    if (!value_of(sp, IMAGE) && !value_of(sp, NAME)) {
        unsetenv(ASKED);
        for (int kind = MOUNTS; kind < KINDS; kind++)
            if (given[kind])
                slurm_error("container: %s is ignored: neither --container-image nor --container-name is given", kinds[kind]);
        return 0;
    }
    if (here && getenv("SLURM_BCAST"))
        refuse("SLURM_BCAST", "unset it: the image has the program, and srun would send the one of this machine");
    if (here)
        refuse_words();
    return setenv(ASKED, "yes", 1);
}

/* srun has its program's words now. What it sends in their place is a program that a node without all this has not got. */
int slurm_spank_local_user_init(spank_t sp, int ac, char **av)
{
    (void)ac, (void)av;
    char line[65536], **argv = NULL, *word = line, *typed = NULL, *name;
    int argc = 0, words = 0;
    size_t size;

    if (!getenv(ASKED))
        return 0;
    if (spank_get_item(sp, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS || argc < 1 || !(size = own_words(line, sizeof line)))
        return -1;
    for (size_t i = 0; i < size; i++)
        words += !line[i];
    for (int i = 0; i <= words - argc; i++, word += strlen(word) + 1)
        typed = word;
    /* With SLURM_TEST_EXEC (LaunchParameters=test_exec), srun has put in its place where this machine has a program of that name. */
    name = strrchr(argv[0], '/');
    if (typed && *typed != '/' && name) {
        char *last = strrchr(typed, '/');
        if (!strcmp(name + 1, last ? last + 1 : typed))
            argv[0] = typed;
    }
    if (setenv(PREFIX "COMMAND", argv[0], 1) || !(argv[0] = strdup(PROGRAM)))
        return -1;
    return 0;
}

/* As the user, in the task's own process, before the prologs and the program. */
int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
    (void)ac, (void)av;
    uint32_t job = 0, step = 0;
    int argc = 0;
    char **argv = NULL, name[64], text[32];
    const char *value;

    if (!value_of(sp, IMAGE) && !value_of(sp, NAME))
        return 0;
    if (spank_get_item(sp, S_JOB_ID, &job) || spank_get_item(sp, S_JOB_STEPID, &step) || spank_get_item(sp, S_JOB_ARGV, &argc, &argv) || argc < 1)
        return -1;
    /* salloc's shell is on the node itself, where srun is. */
    spank_unsetenv(sp, ASKED);
    if (step == SLURM_INTERACTIVE_STEP)
        return 0;
    for (int kind = 0; kind < KINDS; kind++) {
        snprintf(name, sizeof name, PREFIX "%s", kinds[kind]);
        if ((value = value_of(sp, kind)))
            spank_setenv(sp, name, value, 1);
        else
            spank_unsetenv(sp, name);
    }
    /* Those of the node: in a heterogeneous job, SLURM_JOB_ID is another. */
    snprintf(text, sizeof text, "%u", job);
    spank_setenv(sp, PREFIX "JOB", text, 1);
    if (step == SLURM_BATCH_SCRIPT)
        snprintf(text, sizeof text, "batch");
    else
        snprintf(text, sizeof text, "%u", step);
    spank_setenv(sp, PREFIX "STEP", text, 1);
    if (strcmp(argv[0], PROGRAM)) { /* a batch script */
        spank_setenv(sp, PREFIX "COMMAND", argv[0], 1);
        argv[0] = strdup(PROGRAM); /* slurmstepd's own array, of which this process has a copy */
    }
    return argv[0] ? 0 : -1;
}

/* The step is over on this node. What keeps its container is in its control group; where Slurm has none (cgroup v1), it would stay. */
int slurm_spank_exit(spank_t sp, int ac, char **av)
{
    (void)ac, (void)av;
    uid_t uid;
    gid_t gid;
    uint32_t job, step;
    char path[128], words[8] = "";
    int pid = 0;
    FILE *stream;

    if (spank_context() != S_CTX_REMOTE || !value_of(sp, IMAGE) || value_of(sp, NAME))
        return 0;
    if (spank_get_item(sp, S_JOB_UID, &uid) || spank_get_item(sp, S_JOB_GID, &gid) || spank_get_item(sp, S_JOB_ID, &job) ||
        spank_get_item(sp, S_JOB_STEPID, &step))
        return 0;
    pid_t child = fork();
    if (child == 0) {
        /* As the user, whose file it is. */
        if (setgroups(1, &gid) || setgid(gid) || setuid(uid))
            _exit(1);
        if (step == SLURM_BATCH_SCRIPT)
            snprintf(path, sizeof path, "/run/clusterctl/jobs/%u/runtime/step-%u.batch.pid", job, job);
        else
            snprintf(path, sizeof path, "/run/clusterctl/jobs/%u/runtime/step-%u.%u.pid", job, job, step);
        if (!(stream = fopen(path, "r")) || fscanf(stream, "%d", &pid) != 1 || pid < 2)
            _exit(0);
        snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
        if ((stream = fopen(path, "r")) && fread(words, 1, sizeof words - 1, stream) == 7 && !strcmp(words, "/.pause"))
            kill(pid, SIGKILL);
        _exit(0);
    }
    if (child > 0)
        waitpid(child, NULL, 0);
    return 0;
}
