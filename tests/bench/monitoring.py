"""What it costs to watch many nodes: Prometheus with our rules, made-up nodes, and Slurm's figures as they are written.

Each node says what this computer's node exporter says; Slurm's answers have a queue of twenty jobs a node. The server
of the made-up nodes has a process of its own, which is not counted.
"""

from __future__ import annotations

import json
import multiprocessing
import runpy
import shutil
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from worker import free_port

from provision import content

#: Seconds between two questions to a node, as the role has it; and for how many rounds is waited.
INTERVAL, ROUNDS = 15, 6
JOBS = 20
PROGRAMS = ("prometheus", "prometheus-node-exporter")


def of_many_nodes(nodes: int) -> dict[str, Any]:
    """Return figures by name; none where Prometheus or the node exporter is not installed."""
    if not all(map(shutil.which, PROGRAMS)):
        return {}
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        place = Path(scratch)
        begun = time.process_time()
        slurm = slurm_figures(nodes)
        written = time.process_time() - begun
        with served({"/node": exporter_says(), "/slurm": slurm}) as port, prometheus(place, nodes, port) as own:
            time.sleep(ROUNDS * INTERVAL)
            cpu_then, at = asked(own, "process_cpu_seconds_total")
            time.sleep(INTERVAL * 2)
            cpu, now = asked(own, "process_cpu_seconds_total")
            return {
                f"of {nodes} nodes: series": int(asked(own, "prometheus_tsdb_head_series")[0]),
                "memory of Prometheus, MB": round(asked(own, "process_resident_memory_bytes")[0] / 1e6),
                "processors that Prometheus keeps busy": round((cpu - cpu_then) / (now - at), 2),
                "seconds to read Slurm's figures": round(asked(own, 'scrape_duration_seconds{job="slurm"}')[0], 2),
                "nodes that answered": int(asked(own, 'sum(up{job="node"})')[0]),
                "slurm-metrics: processor seconds to write them, each 15 s": round(written, 2),
                "slurm-metrics: MB": round(len(slurm) / 1e6, 1),
            }


def slurm_figures(nodes: int) -> bytes:
    """Return what slurm-metrics writes of made-up answers of Slurm."""
    from prometheus_client import CollectorRegistry, generate_latest

    program = runpy.run_path(str(content.ROOT / "roles/machine_metrics/files/slurm-metrics"))
    listed = [
        {"name": f"node{number}", "state": ["MIXED"], "gres": "gpu:h100:8", "gres_used": "gpu:h100:8(IDX:0-7)"}
        for number in range(nodes)
    ]
    jobs = [
        {
            "job_id": number,
            "job_state": ["RUNNING" if number < nodes else "PENDING"],
            "partition": "batch",
            "account": f"a{number % 50}",
            "user_name": f"u{number % 300}",
            "nodes": f"node{number}" if number < nodes else "",
            "gres_detail": ["gpu:h100:8(IDX:0-7)"] if number < nodes else [],
        }
        for number in range(nodes * JOBS)
    ]
    answers = [{"nodes": listed}, {"jobs": jobs}, {"statistics": {"schedule_cycle_last": 1}}]
    answer = "\036".join(map(json.dumps, answers))
    registry = CollectorRegistry()
    registry.register(program["Families"](program["samples"](answer, time.time(), program["Ended"]())))
    return generate_latest(registry)


def exporter_says() -> bytes:
    """Return what the node exporter says of this computer."""
    address = f"127.0.0.1:{free_port()}"
    with stopped(subprocess.Popen([PROGRAMS[1], f"--web.listen-address={address}"], stderr=subprocess.DEVNULL)):
        return fetched(f"http://{address}/metrics")


@contextmanager
def served(pages: dict[str, bytes]) -> Iterator[int]:
    """Serve these pages, each also below its path, from another process; yield the port."""
    port = free_port()
    server = multiprocessing.get_context("fork").Process(target=_serve, args=(port, pages), daemon=True)
    server.start()
    try:
        yield port
    finally:
        server.terminate()
        server.join()


def _serve(port: int, pages: dict[str, bytes]) -> None:
    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            page = pages["/" + self.path.split("/")[1]]
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: Any) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", port), Answer).serve_forever()


@contextmanager
def prometheus(place: Path, nodes: int, port: int) -> Iterator[str]:
    """Run Prometheus with the role's rules and these targets; yield the address of its API."""
    own = f"127.0.0.1:{free_port()}"
    target = f"127.0.0.1:{port}"
    listed = [
        {"targets": [target], "labels": {"node": f"node{number}", "__metrics_path__": f"/node/{number}"}}
        for number in range(nodes)
    ]
    (place / "nodes.json").write_text(json.dumps(listed), encoding="utf-8")
    shutil.copy(content.ROOT / "roles/monitoring/files/alerts.rules", place / "alerts.yml")
    jobs = [
        {"job_name": "node", "file_sd_configs": [{"files": [str(place / "nodes.json")]}]},
        {"job_name": "slurm", "metrics_path": "/slurm", "static_configs": [{"targets": [target]}]},
        {"job_name": "own", "static_configs": [{"targets": [own]}]},
    ]
    settings = {
        "global": {"scrape_interval": f"{INTERVAL}s", "evaluation_interval": f"{INTERVAL}s"},
        "rule_files": [str(place / "alerts.yml")],
        "scrape_configs": jobs,
    }
    (place / "prometheus.json").write_text(json.dumps(settings), encoding="utf-8")
    words = [f"--config.file={place}/prometheus.json", f"--storage.tsdb.path={place}/data"]
    with stopped(subprocess.Popen([PROGRAMS[0], f"--web.listen-address={own}", *words], stderr=subprocess.DEVNULL)):
        yield own


def asked(own: str, question: str) -> tuple[float, float]:
    """Return the value that Prometheus answers about itself or Slurm's target, and when it was true."""
    narrowed = question if "{" in question else f'{question}{{job="own"}}'
    words = urllib.parse.urlencode({"query": narrowed})
    answer = json.loads(fetched(f"http://{own}/api/v1/query?{words}"))
    at, value = answer["data"]["result"][0]["value"]
    return float(value), float(at)


def fetched(address: str) -> bytes:
    """Return a page, waiting until its server is up."""
    for attempt in range(100):
        try:
            with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310  # a port of this computer
                body: bytes = answer.read()
                return body
        except OSError:
            if attempt == 99:
                raise
            time.sleep(0.3)
    raise AssertionError


@contextmanager
def stopped(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End a process with the block."""
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)
