#!/bin/bash
# A job that is watched while Slurm's daemons are replaced: it writes a number every second to /tmp, home and its output,
# loads data by PyTorch's DataLoader with workers in a container, and, once home has a file "replaced", starts a new step and
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
import torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        time.sleep(0.2)
        return torch.tensor([index])

# Workers that stay, whose batches come through shared memory.
loader, epochs = DataLoader(Numbers(), batch_size=5, num_workers=2, persistent_workers=True), 0
while not os.path.exists("/work/survivor.stop"):
    seen = torch.cat(list(loader)).flatten().tolist()
    assert seen == list(range(10)), seen
    epochs += 1
    if epochs == 1:
        print("begun", flush=True)
print("whole", epochs, flush=True)
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
