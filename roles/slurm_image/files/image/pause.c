/* Copyright the clusterctl authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Keeps the namespaces of a step's container: any image can run it. TERM ends it, although it may be process 1.
 */
#include <signal.h>
#include <unistd.h>

static void end(int number)
{
    (void)number;
    _exit(0);
}

int main(void)
{
    signal(SIGTERM, end);
    signal(SIGINT, end);
    for (;;)
        pause();
}
