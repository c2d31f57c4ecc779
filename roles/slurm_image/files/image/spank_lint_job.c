/* Copyright the clusterctl authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * spank_lint_job: sbatch says which mistakes of public templates are in the script that it submits, and submits it.
 *
 * In the user's own process, so that neither slurmctld nor anybody else waits. It starts the program lint-job beside
 * itself, which reads of /proc what sbatch was given, and is ended after a second, whatever it does.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

SPANK_PLUGIN(lint_job, 1)

int slurm_spank_init_post_opt(spank_t sp, int ac, char **av)
{
    (void)sp, (void)ac, (void)av;
    Dl_info own;
    char place[PATH_MAX], program[PATH_MAX + 32], process[16];
    if (spank_context() != S_CTX_ALLOCATOR || strcmp(program_invocation_short_name, "sbatch") != 0 ||
        !dladdr((void *)slurm_spank_init_post_opt, &own) || !own.dli_fname || !realpath(own.dli_fname, place))
        return 0;
    *strrchr(place, '/') = '\0';
    snprintf(program, sizeof program, "%s/lint-job/lint-job", place);
    snprintf(process, sizeof process, "%d", (int)getpid());
    pid_t child = fork();
    if (child == 0) {
        struct itimerval second = {.it_value = {.tv_sec = 1}};
        int nothing = open("/dev/null", O_RDWR);
        dup2(nothing, STDIN_FILENO);
        dup2(nothing, STDOUT_FILENO);
        setitimer(ITIMER_REAL, &second, NULL); /* it outlives execve, and ends whatever is running then */
        execl(program, "lint-job", process, (char *)NULL);
        _exit(0);
    }
    if (child > 0)
        waitpid(child, NULL, 0);
    return 0;
}
