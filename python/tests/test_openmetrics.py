"""Measurements for Prometheus: what servers and `kernel status` print, the dashboard, and the control group's query."""

from __future__ import annotations

import errno
import json
import random
import re
import select
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import parser as text_parser
from prometheus_client.openmetrics import parser

ROOT = Path(__file__).parents[2]
BINARY = Path(sys.executable).with_name("verus-endpoint")
DASHBOARD = ROOT / "packaging" / "grafana-dashboard.json"
PAGE = ROOT / "docs" / "operators.md"
PATIENCE_S = 30.0

#: Quantities of running flows, by median and 95th percentile, in base units.
QUANTITIES = {
    "verus_window_bytes",
    "verus_round_trip_seconds",
    "verus_queueing_delay_seconds",
    "verus_queueing_delay_target_seconds",
    "verus_delivery_rate_bytes_per_second",
    "verus_lost_ratio",
}
#: Counts, without the `_total` of their series.
COUNTS = {"verus_flows_begun", "verus_acknowledged_bytes", "verus_sent_packets", "verus_lost_packets"}

#: A series: its name, its labels and its value.
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


@contextmanager
def serving(arguments: Sequence[object], **more: Any) -> Iterator[dict[str, Any]]:
    """A server and its first event."""
    command = [str(BINARY), *map(str, arguments), "--json", "--metrics", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **more) as process:
        try:
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], PATIENCE_S)[0]
            yield json.loads(process.stdout.readline())
        finally:
            process.kill()


def scraped(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        assert answer.headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        text: str = answer.read().decode()
        return text


def parsed(text: str) -> Series:
    """The series of a page, which must be OpenMetrics and hold no family but the documented ones."""
    series: Series = {}
    for family in parser.text_string_to_metric_families(text):
        assert family.documentation
        assert family.type == ("counter" if family.name in COUNTS else "gauge")
        assert family.name in {"verus_flows"} | QUANTITIES | COUNTS
        if family.unit:
            assert family.name.endswith(f"_{family.unit}")
        for sample in family.samples:
            series[sample.name, frozenset(sample.labels.items())] = sample.value
    # node_exporter's textfile collector reads the older format, in which the same text is valid.
    older = [sample for family in text_parser.text_string_to_metric_families(text) for sample in family.samples]
    assert len(older) == len(series)
    return series


def value(series: Series, name: str, sender: str, **labels: str) -> float | None:
    return series.get((name, frozenset({"sender": sender, **labels}.items())))


def scraped_until(url: str, name: str, sender: str, least: float, **labels: str) -> Series:
    """The first page on which that series is at least so large."""
    end = time.monotonic() + PATIENCE_S
    while True:
        series = parsed(scraped(url))
        if (value(series, name, sender, **labels) or 0.0) >= least:
            return series
        assert time.monotonic() < end, f"{name} stays below {least}: {series}"
        time.sleep(0.05)


def test_a_probe_server_is_scraped_while_a_test_runs() -> None:
    """The label has no settings, since clients choose them and each would be another series."""
    with serving(["probe", "server", "--bind", "127.0.0.1", "--port", 0]) as first:
        url = first["metrics"]
        assert parsed(scraped(url)) == {}
        client = ["probe", "client", first["address"], "--direction", "down", "--rate-mbps", 5, "--duration", 20]
        command = [str(BINARY), *map(str, client), "--scheme", "forward:budget_ms=50"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
            series = scraped_until(url, "verus_acknowledged_bytes_total", "forward", 100_000)
            running.terminate()
        assert value(series, "verus_flows", "forward") == 1
        assert value(series, "verus_flows_begun_total", "forward") == 1
        for name in sorted(QUANTITIES - {"verus_delivery_rate_bytes_per_second"}):
            median, late = (value(series, name, "forward", quantile=quantile) for quantile in ("0.5", "0.95"))
            assert median is not None, name
            assert median == late, "one flow"
        assert 0 < (value(series, "verus_round_trip_seconds", "forward", quantile="0.5") or 0) < 1
        assert 0 < (value(series, "verus_queueing_delay_target_seconds", "forward", quantile="0.5") or 0) < 0.05
        # Counts outlive their flows.
        acknowledged = value(series, "verus_acknowledged_bytes_total", "forward")
        end = time.monotonic() + PATIENCE_S
        while value(series, "verus_flows", "forward") != 0:
            assert time.monotonic() < end
            series = parsed(scraped(url))
        assert (value(series, "verus_acknowledged_bytes_total", "forward") or 0) >= (acknowledged or 0)
        assert value(series, "verus_flows_begun_total", "forward") == 1


def test_a_file_server_is_scraped_while_a_transfer_runs(tmp_path: Path) -> None:
    served, into = tmp_path / "served", tmp_path / "into"
    served.mkdir()
    into.mkdir()
    (served / "large").write_bytes(random.Random(1).randbytes(16 << 20))
    environment = {"PATH": "/usr/bin:/bin", "VERUS_CONFIG": str(tmp_path / "config")}
    scheme = "constant:rate_mbps=20"
    server = ["serve", served, "--bind", "127.0.0.1", "--port", 0, "--no-token", "--scheme", scheme]
    with serving(server, env=environment) as first:
        url = first["metrics"]
        receive = [str(BINARY), "receive", f"{first['address']}/large", "--into", str(into)]
        receive += ["--fingerprint", first["fingerprint"]]
        environment["VERUS_CONFIG"] = str(tmp_path / "client")
        with subprocess.Popen(receive, env=environment, stdout=subprocess.DEVNULL) as running:
            series = scraped_until(url, "verus_acknowledged_bytes_total", scheme, 100_000)
            running.terminate()
        assert value(series, "verus_flows", scheme) == 1
        assert (value(series, "verus_window_bytes", scheme, quantile="0.5") or 0) > 0
        assert 0 < (value(series, "verus_round_trip_seconds", scheme, quantile="0.95") or 0) < 5
        assert (value(series, "verus_sent_packets_total", scheme) or 0) > 50
        assert value(series, "verus_lost_packets_total", scheme) is not None


def test_nothing_but_measurements_is_served_and_to_this_machine_alone(tmp_path: Path) -> None:
    with serving(["probe", "server", "--bind", "127.0.0.1", "--port", 0]) as first:
        url = first["metrics"]
        for path, code in (("/", 404), ("/metrics/../etc/passwd", 404)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(url.removesuffix("/metrics") + path, timeout=PATIENCE_S)
            assert refused.value.code == code
            refused.value.close()
        port = int(url.split(":")[2].split("/")[0])
        for bytes_sent in (b"\x00" * 100, b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 5000, b""):
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
                try:
                    connection.sendall(bytes_sent)
                    connection.shutdown(socket.SHUT_WR)
                    answer = connection.recv(100)
                except OSError as error:  # it answers and closes before it has read everything
                    if error.errno not in (errno.ECONNRESET, errno.ENOTCONN, errno.EPIPE):
                        raise
                    answer = b""
                assert answer == b"" or answer.startswith(b"HTTP/1.1 4"), answer
        assert parsed(scraped(url)) == {}
    for verb in (["probe", "server", "--port", "0"], ["serve", str(tmp_path), "--port", "0", "--no-token"]):
        command = [str(BINARY), *verb, "--metrics", "0.0.0.0:0"]
        refusal = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert refusal.returncode == 2
        assert "--metrics-remote" in refusal.stderr


def panels() -> Iterator[tuple[str, str]]:
    """Title and query of each panel of the dashboard."""
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def test_each_query_of_the_dashboard_names_series_and_labels_that_exist() -> None:
    existing = {"verus_flows"} | QUANTITIES | {f"{name}_total" for name in COUNTS}
    named: set[str] = set()
    for title, query in panels():
        names = set(re.findall(r"verus_\w+", query))
        assert names, title
        assert names <= existing, title
        for name, selector in re.findall(r"(verus_\w+)\{([^}]*)\}", query):
            labels = set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", selector))
            quantities = {"quantile"} if name in QUANTITIES else set()
            assert labels <= {"sender", "job", "instance"} | quantities, title
        named |= names
    assert named == existing, "each series has its place"


def control_group_query() -> str:
    """The query as the page prints it."""
    (query,) = re.findall(r"```promql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return " ".join(query.split())


def test_the_control_groups_query_is_the_dashboards() -> None:
    variables = {"$sender": "forward", "$control": "cubic"}
    queries = []
    for _, query in panels():
        for variable, default in variables.items():
            query = query.replace(variable, default)
        queries.append(" ".join(query.split()))
    assert control_group_query() in queries
    dashboard = json.loads(DASHBOARD.read_text())
    defaults = {f"${entry['name']}": entry.get("query") for entry in dashboard["templating"]["list"]}
    assert variables.items() <= defaults.items()


#: Two machines of which both groups are, for two hours: round trips in seconds, by sender and quantile.
ROUND_TRIPS = {
    ("forward", "0.5"): (0.04, 0.06),
    ("forward", "0.95"): (0.1, 0.1),
    ("cubic", "0.5"): (0.1, 0.15),
    ("cubic", "0.95"): (0.5, 0.3),
}


def test_the_control_groups_query_divides_the_groups_round_trips(tmp_path: Path) -> None:
    """0.05 / 0.125 at the median, 0.1 / 0.4 at the 95th percentile."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool (on Debian `apt install prometheus`)")
    series = [
        {
            "series": f'verus_round_trip_seconds{{sender="{sender}",quantile="{quantile}",instance="{machine}"}}',
            "values": f"{seconds}x120",
        }
        for (sender, quantile), machines in ROUND_TRIPS.items()
        for machine, seconds in enumerate(machines)
    ]
    samples = [{"labels": '{quantile="0.5"}', "value": 0.4}, {"labels": '{quantile="0.95"}', "value": 0.25}]
    expected = {"expr": control_group_query(), "eval_time": "2h", "exp_samples": samples}
    test = {
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": [expected]}],
    }
    file = tmp_path / "query.json"  # of YAML's
    file.write_text(json.dumps(test))
    ran = subprocess.run(
        [promtool, "test", "rules", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
