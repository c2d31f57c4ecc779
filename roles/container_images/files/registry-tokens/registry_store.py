"""The directory of the registry of users' images: what a user has there, and what of it no tag needs any more.

docker-registry's own collection (2.8) knows a registry that nobody writes to only, and takes what a list of several
architectures names. Standard library only.
"""

import json
import os
import re
import shutil
import sys
import time
from pathlib import Path

from registry_rights import RefusedError

#: Seconds for which what is being pushed may lack its tag, and after which that is looked for again.
DAY = 86_400
#: Seconds in which a push that the registry has accepted is on the disk whole; until then nothing is lost for good.
SETTLED = 60
#: How the name ends of what is about to be removed.
ASIDE = ".aside"
#: Bytes of the largest manifest that a registry takes.
MANIFEST = 4 * 1024 * 1024
GB = 1_000_000_000

DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


class Store:
    """The registry's directory, as docker-registry lays it out."""

    def __init__(self, directory, pause=time.sleep):
        self._root, self._pause = Path(directory, "docker/registry/v2"), pause

    def repositories(self, user=""):
        """Return the directories of repositories, of all users or of one."""
        found = []
        for at, below, _ in os.walk(self._root / "repositories" / user):
            if any(name.startswith("_") for name in below):
                found.append(Path(at))
            below[:] = [name for name in below if not name.startswith("_")]
        return found

    def blob(self, name):
        """Return the file of what has this digest, without the word before its number."""
        return self._root / "blobs/sha256" / name[:2] / name / "data"

    def held(self, user):
        """Return the bytes on the disk of what a user has pushed, and is pushing."""
        repositories = self.repositories(user)
        files = [self.blob(name) for name in linked(repositories)]
        files += [file for one in repositories for file in one.glob("_uploads/*/data")]
        return sum(map(size, files))

    def require_room(self, user, limit, free, registry):
        """Refuse a push where the user has all that a user may have, or the disk only what is to stay free (bytes)."""
        if (left := shutil.disk_usage(self._root.parents[2]).free) < free:
            told = f"its disk has {left / GB:.0f} GB left, of which {free / GB:.0f} stay free"
            raise RefusedError(f"{registry} takes no images now, {told}: tell the administrators")
        if (held := self.held(user)) >= limit:
            told = f"{registry}/{user}/ has {held / GB:.1f} GB, of {limit / GB:.0f} that a user may have"
            what = f"what no tag names goes in the night: srun skopeo delete docker://{registry}/{user}/IMAGE:TAG"
            raise RefusedError(f"{told}: {what}")

    def collect(self, now):
        """Remove what no tag has needed for a day, while others push; return how many files of images.

        First go the links of a repository, by which the registry knows what it has; then what nothing is linked to.
        Each is set aside before: a manifest that comes then is refused for it, and one that was accepted just before
        is found when all is looked at once more, and has it back. What a user removes meanwhile is gone already.
        """
        for one in list(self._root.rglob(f"*{ASIDE}")):
            back(one)  # of a collection that was ended
        links = {link: one for one in self.repositories() for link in self._over(one, now)}

        def named_now():
            named = {one: self._named(one, now) for one in set(links.values())}
            unread = {link for link, one in links.items() if named[one] is None}
            read = links.keys() - unread
            return unread | {one for one in read if one.name in named[links[one]][one.parents[1].name == "_layers"]}

        self._drop(links, named_now)
        known = linked(self.repositories())
        files = {one.parent for one in self._root.glob("blobs/sha256/*/*/data") if old(one, now)}
        files = {one for one in files if one.name not in known}

        def linked_now():
            known = linked(self.repositories())
            return {one for one in files if one.name in known}

        return self._drop(files, linked_now)

    def _drop(self, directories, needed):
        """Remove directories but those that are ``needed()`` when all pushes of now have ended; return how many."""
        aside = {one: place for one in directories if (place := set_aside(one))}
        if not aside:
            return 0
        self._pause(SETTLED)
        kept = needed()
        for one, place in aside.items():
            if one in kept:
                back(place)
            else:
                shutil.rmtree(place, ignore_errors=True)
        return len(aside.keys() - kept)

    def _over(self, repository, now):
        """Return the links of a repository that lead to what no tag has needed for a day."""
        found = self._named(repository, now)
        if found is None:
            return []
        manifests, layers = found
        entries = [
            *((one, manifests) for one in repository.glob("_manifests/revisions/sha256/*")),
            *((one, manifests) for one in repository.glob("_manifests/tags/*/index/sha256/*")),
            *((one, layers) for one in repository.glob("_layers/sha256/*")),
        ]
        return [one for one, needed in entries if one.name not in needed and old(one / "link", now)]

    def _named(self, repository, now):
        """Return the numbers of manifests and of layers that tags lead to, or led to within a day.

        None where that cannot be read, whatever is wrong: users write these files, and nothing in them may keep what is
        others' from being collected.
        """
        try:
            tags = []
            for link in repository.glob("_manifests/tags/*/current/link"):
                tags.append(link.read_text("ascii"))
                # What it named before: which of them it was yesterday, nothing says.
                earlier = [] if old(link, now) else link.parents[1].glob("index/sha256/*")
                tags += [f"sha256:{one.name}" for one in earlier if self.blob(one.name).exists()]
            return self._needed(tags)
        except Exception as problem:
            print(f"{repository}: left as it is: {type(problem).__name__} {problem}"[:300], file=sys.stderr, flush=True)
            return None

    def _needed(self, tags):
        """Return the numbers of manifests and of layers that tags lead to."""
        manifests, layers, more = set(), set(), {number(tag) for tag in tags}
        while more:
            name = more.pop()
            manifests.add(name)
            if size(self.blob(name)) > MANIFEST:
                raise ValueError(f"{name} is no manifest")
            told = json.loads(self.blob(name).read_bytes())
            more |= {number(part["digest"]) for part in told.get("manifests") or []} - manifests
            parts = [told.get("config"), *(told.get("layers") or []), *(told.get("fsLayers") or [])]
            layers |= {number(part.get("digest") or part["blobSum"]) for part in parts if part is not None}
        return manifests, layers


def number(digest):
    """Return a digest's number."""
    if found := DIGEST.fullmatch(digest):
        return found[1]
    raise ValueError(f"{digest[:80]!r} is no digest")


def linked(repositories):
    """Return the numbers of all layers and manifests that repositories have."""
    links = ("_layers/sha256/*", "_manifests/revisions/sha256/*")
    return {link.name for one in repositories for pattern in links for link in one.glob(pattern)}


def set_aside(path):
    """Rename a directory, so that the registry does not see it; return what it is called then, None if it is gone."""
    try:
        return path.rename(path.with_name(path.name + ASIDE))
    except FileNotFoundError:
        return None


def back(path):
    """Give a directory that was set aside its name back, unless there is another by now."""
    there = path.with_name(path.name[: -len(ASIDE)])
    if there.exists():
        shutil.rmtree(path, ignore_errors=True)
        return
    try:
        path.rename(there)
    except FileNotFoundError:
        return  # with its tag, which a user has removed


def size(path):
    """Return a file's bytes, 0 where it is not there."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def old(path, now):
    """Return whether a file has been there for a day; one that is not there is left of a run that was killed."""
    try:
        return path.stat().st_mtime < now - DAY
    except OSError:
        return True


def collect_daily(store):
    """Remove what is needed no more, now and each day, whatever went wrong the day before."""
    while True:
        try:
            print(f"{store.collect(time.time())} layers and manifests were needed no more", flush=True)
        except Exception as problem:
            print(f"what is needed no more was not removed: {problem!r}"[:300], file=sys.stderr, flush=True)
        time.sleep(DAY)
