#!/bin/bash
# A job that is watched while Slurm's daemons are replaced: it writes a number every second to /tmp, home and its output,
# loads data with workers in a container, and, once home has a file "replaced", starts a new step and
# another container. It ends with exit code 3.
cd "$HOME" || exit 90
count() {
    for ((number = 1; !stopped; number++)); do
        [ ! -e survivor.stop ] || stopped=1
        echo "$number $EPOCHSECONDS" | tee -a survivor.home /tmp/survivor
        sleep 1
    done
}
stopped=0
image=$(podman images --quiet --no-trunc | head -n 1)
# Programs of Python, which come on standard input.
container() { podman run --rm --interactive --ipc host --network host --volume "$HOME:/work" "$image" python3 -; }

count &
container <<'END' >survivor.loader 2>survivor.trouble &
import os, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, shared_memory

# What a DataLoader is to the kernel: workers, pipes, and memory that they share. PyTorch is a minute's import there.
shared = shared_memory.SharedMemory(create=True, size=10)

def load(index):
    time.sleep(0.2)
    shared.buf[index % 10] = index % 256
    return index

seen = 0
with ProcessPoolExecutor(2, mp_context=get_context("fork")) as workers:
    while not os.path.exists("/work/survivor.stop"):
        batch = list(workers.map(load, range(seen, seen + 10)))
        assert batch == list(range(seen, seen + 10)), batch
        assert bytes(shared.buf[:10]) == bytes(index % 256 for index in batch), batch
        seen += 10
        if seen == 10:
            print("begun", flush=True)
shared.close()
shared.unlink()
print("whole", seen, flush=True)
END
loader=$!
while [ ! -e survivor.replaced ]; do sleep 1; done
# shellcheck disable=SC2016 # of the step
srun --ntasks=1 --overlap sh -c 'echo "step $SLURM_STEP_ID $(tail -n 1 /tmp/survivor)"' </dev/null >survivor.step 2>&1
container <<<'print("container")' >survivor.container 2>&1
touch survivor.stop
wait $loader
echo "loader $?" >>survivor.loader
wait
cp /tmp/survivor survivor.tmp
exit 3
