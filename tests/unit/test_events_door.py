"""The callback that hands events over: what it spares Ansible's workers, which otherwise only the bench would show."""

from __future__ import annotations

import json
import subprocess
import sys

from provision import content

#: Loads the callback on a base that is none of ansible-runner's, and tells what it asks of the collector.
PROGRAM = """
import gc, importlib.util, json, sys
from ansible.plugins.loader import callback_loader

class Base:
    plays = 0
    def v2_playbook_on_play_start(self, play): Base.plays += 1

callback_loader.get = lambda *_, **__: Base
spec = importlib.util.spec_from_file_location("clusterctl_events", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
asked = []
module.gc = type("Collector", (), {name: staticmethod(lambda name=name: asked.append(name)) for name in dir(gc)})
callback = module.CallbackModule()
for play in range(3):
    callback.v2_playbook_on_play_start(play)
print(json.dumps({"asked": asked, "plays": Base.plays}))
"""


def test_what_lives_as_long_as_the_run_is_frozen_at_each_play_and_looked_through_once() -> None:
    plugin = content.ROOT / "plugins/callback/clusterctl_events.py"
    done = subprocess.run([sys.executable, "-c", PROGRAM, plugin], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    # Each other question (get_freeze_count, get_objects) goes through all that is frozen.
    assert json.loads(done.stdout) == {"asked": ["collect", "freeze", "freeze", "freeze"], "plays": 3}
