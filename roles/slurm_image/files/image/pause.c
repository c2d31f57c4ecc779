/* Copyright the clusterctl authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * pause UID GID: keeps the namespaces of a step's container: any image can run it. TERM ends it, although it may be
 * process 1.
 *
 * In the container's user namespace its user is root. A further one, in which they have their own numbers again, is kept
 * open as a file for all that enter: tasks may look into each other's memory (CUDA's IPC, MPI's single copy, debuggers)
 * only where they have one user namespace in common.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* As container_task has it. */
enum { THEMSELVES = 9 };

static void end(int number)
{
    (void)number;
    _exit(0);
}

static int put(const char *file, const char *text)
{
    int to = open(file, O_WRONLY | O_CLOEXEC), done;

    if (to < 0)
        return 0;
    done = write(to, text, strlen(text)) == (ssize_t)strlen(text);
    close(to);
    return done;
}

static int map(const char *file, const char *number)
{
    char text[64];

    snprintf(text, sizeof text, "%s 0 1", number);
    return put(file, text);
}

/* Return whether there is such a namespace now: a child makes it, and ends when it is held here. */
static int hold(const char *uid, const char *gid)
{
    int pair[2], held = -1; /* low numbers: never THEMSELVES */
    char self[32] = "", name[64];
    pid_t child;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) || (child = fork()) < 0)
        return 0;
    if (!child) {
        close(pair[0]);
        /* The container's /proc is the node's, where processes have other numbers than here. */
        if (!unshare(CLONE_NEWUSER) && put("/proc/self/setgroups", "deny") && map("/proc/self/uid_map", uid)
            && map("/proc/self/gid_map", gid) && readlink("/proc/self", self, sizeof self - 1) > 0
            && write(pair[1], self, sizeof self) == sizeof self)
            _exit(read(pair[1], self, 1) != 0);
        _exit(1);
    }
    close(pair[1]);
    if (read(pair[0], self, sizeof self) == sizeof self) {
        snprintf(name, sizeof name, "/proc/%s/ns/user", self);
        held = open(name, O_RDONLY | O_CLOEXEC);
    }
    /* Whoever looks for it finds it whole. */
    if (held >= 0) {
        dup2(held, THEMSELVES);
        close(held);
    }
    close(pair[0]);
    waitpid(child, NULL, 0);
    return held >= 0;
}

int main(int count, char **words)
{
    signal(SIGTERM, end);
    signal(SIGINT, end);
    if (count == 3 && !hold(words[1], words[2])) {
        perror("pause: no user namespace");
        return 1;
    }
    for (;;)
        pause();
}
