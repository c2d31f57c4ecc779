"""Building an image, with stand-ins for mmdebstrap and the engine that print what they print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machines import plugin

for part in ("site_network", "debian_mirror", "wheels", "image_registry", "image_recipe", "skopeo"):
    plugin(f"plugins/module_utils/{part}.py", f"ansible.module_utils.{part}")
module = plugin("roles/container_images/library/cluster_image.py")

DIGEST = f"sha256:{'c' * 64}"

ENGINE = f"""\
#!/bin/sh
here=$(dirname "$0")
echo "$*" >>"$here/calls"
case "$1" in
run) echo "Collecting torch"; exit "$(cat "$here/pip")" ;;
pull) exit "$(cat "$here/pull")" ;;
image) [ "$2" = rm ] ;;
import) cat >"$here/imported"; echo sha256:made ;;
build) cat >/dev/null; echo "Step 1/2 : FROM x"; echo "Step 2/2 : RUN y"; exit "$(cat "$here/build")" ;;
push) echo "39a122b5e6b5: Pushed"; [ -e "$here/mute" ] || echo "1: digest: {DIGEST} size: 1783" ;;
esac
"""

BASE = """\
#!/bin/sh
echo "I: running apt-get update..." >&2
head -c 300000 /dev/zero | tr '\\0' 'x' >&2
echo tree
exit "$(cat "$(dirname "$0")/base")"
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {"docker": ENGINE, "mmdebstrap": BASE}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    for name in ("build", "base", "pip", "pull"):
        (tmp_path / name).write_text("0")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def image(cache: Path, **other: Any) -> Any:
    return module.Image(
        {
            "name": "slurm",
            "suite": "trixie",
            "base": "",
            "mirror": "http://mirror/debian",
            "files": {"Dockerfile": "FROM x\n"},
            "from": "",
            "directories": {},
            "packages": [],
            "arguments": {},
            "revision": 1,
            "push": "head:5001/clusterctl",
            "pull": "head:5000/clusterctl",
            "cache": str(cache),
            "shared": "",
            **other,
        }
    )


def test_an_image_is_built_on_a_base_from_packages_and_tells_how_far_it_is(
    machine: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one = image(machine)

    assert one.build() == DIGEST

    assert (machine / "imported").read_text() == "tree\n"
    calls = (machine / "calls").read_text()
    assert "build --network host" in calls
    # Named when it is whole: a run that is killed meanwhile leaves nothing that the next one would build upon.
    assert calls.splitlines()[1] == "import -"
    assert calls.splitlines()[2].startswith("tag sha256:made clusterctl/base-trixie:")
    assert f"push head:5001/clusterctl/slurm:{one.recipe[:16]}" in calls
    told = [line.removeprefix("clusterctl-told: going image slurm: ") for line in capfd.readouterr().err.splitlines()]
    assert told == ["base of trixie: running apt-get update", "build: step 2 of 2 (RUN)", "push: 1 of 1 layers"]


@pytest.mark.parametrize(
    ("what", "said"),
    [("base", "no base image of trixie could be made"), ("build", "docker failed with 3"), ("mute", "named no digest")],
)
def test_what_goes_wrong_is_said_with_the_end_of_the_log_and_nothing_is_remembered(
    machine: Path, what: str, said: str
) -> None:
    (machine / what).write_text("3")
    one = image(machine)

    with pytest.raises(module.BuildError, match=said) as failed:
        one.build()

    assert "running apt-get update" in str(failed.value)
    assert not one.record.exists()
    calls = (machine / "calls").read_text()
    assert ("image rm --force sha256:made" in calls) == (what == "base")
    assert ("tag " in calls) == (what != "base")


@pytest.mark.parametrize(
    ("other", "base"),
    [
        ({"from": "harbor.site/hub/debian:{suite}-slim"}, "harbor.site/hub/debian:trixie-slim"),
        ({"mirror": ""}, "debian:trixie-slim"),
        ({"base": "site/slurm:1", "suite": ""}, "site/slurm:1"),
    ],
)
def test_without_a_mirror_of_debian_the_public_image_is_pulled_or_the_one_that_the_site_names(
    machine: Path, other: dict[str, str], base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.debian_mirror, "texts", lambda _: ["deb http://archive/ubuntu noble main\n"])

    assert image(machine, **other).build() == DIGEST

    calls = (machine / "calls").read_text()
    assert f"pull {base}\n" in calls
    assert f"--build-arg BASE={base} " in calls
    assert "import" not in calls


def test_packages_come_by_pip_in_a_container_that_is_thrown_away_and_no_password_is_in_a_command_line(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://reader:secret@proxy:3128")

    assert image(machine, packages=["torch<2.11", "numpy"]).build() == DIGEST

    calls = (machine / "calls").read_text()
    (run,) = (line for line in calls.splitlines() if line.startswith("run --rm "))
    assert run.endswith(" pip torch<2.11 numpy")
    assert "--env http_proxy " in run
    assert "--build-arg http_proxy " in calls
    assert "secret" not in calls


@pytest.mark.parametrize("what", ["pip", "pull"])
def test_what_cannot_be_had_is_said(machine: Path, what: str) -> None:
    (machine / what).write_text("1")

    with pytest.raises(module.BuildError, match="docker failed with 1"):
        image(machine, packages=["torch"], **({"from": "harbor.site/debian"} if what == "pull" else {})).build()


#: Reads or writes what clusters share where a file of that name is beside it; any other registry is the cluster's own.
SKOPEO = f"""\
#!/bin/sh
here=$(dirname "$0")
echo "$*" >>"$here/copied"
case "$*" in *"docker://shared.site/all/"*" docker://"*) way=read ;; *) way=write ;; esac
[ -e "$here/$way" ] || {{ echo 'time="x" level=fatal msg="shared.site: no route to host"'; exit 1; }}
for word; do case $word in --digestfile=*) printf %s "sha256:{"d" * 64}" >"${{word#*=}}" ;; esac; done
"""


@pytest.mark.parametrize(
    ("answers", "digest", "copied", "warned"),
    [
        (["read"], f"sha256:{'d' * 64}", ["{shared} {own}"], []),
        (["write"], DIGEST, ["{shared} {own}", "{own} {shared}", "{own} {sums}"], []),
        ([], DIGEST, ["{shared} {own}", "{own} {shared}"], ["shared.site: no route to host. Fix: "]),
        (None, DIGEST, [], ["skopeo: No such file or directory. Fix: "]),
    ],
)
def test_an_image_that_clusters_share_is_copied_else_built_and_shared_where_that_is_possible(
    machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    answers: list[str] | None,
    digest: str,
    copied: list[str],
    warned: list[str],
) -> None:
    monkeypatch.setenv("PATH", f"{machine}:/bin")
    for way in answers or ():
        (machine / way).touch()
    if answers is not None:
        (machine / "skopeo").write_text(SKOPEO)
        (machine / "skopeo").chmod(0o755)
    one, warnings = image(machine, shared="shared.site/all"), []

    assert one.make(warnings.append) == digest == one.built()

    names = {place: f"docker://{at}/slurm:{one.recipe[:16]}" for place, at in PLACES.items()}
    names["sums"] = f"docker://shared.site/all/slurm:{module.checksums.tag(module.checksums.sums(one.params['files']))}"
    said = (machine / "copied").read_text().splitlines() if answers is not None else []
    assert [" ".join(line.split()[-2:]) for line in said] == [way.format(**names) for way in copied]
    assert [all(part in text for part in warned) for text in warnings] == [True] * len(warned)
    assert (machine / "calls").exists() == (digest == DIGEST)


PLACES = {"shared": "shared.site/all", "own": "head:5001/clusterctl"}
