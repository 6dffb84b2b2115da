"""What a machine says about itself, from files as the kernel writes them."""

from __future__ import annotations

from pathlib import Path

from evalve.host.reading import HostReading, read_host

GB = 1 << 30


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


PLAIN = {
    "proc/meminfo": "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\n",
    "proc/vmstat": "pgpgin 12\npswpin 3\npswpout 4711\n",
    "proc/loadavg": "3.50 2.00 1.00 1/400 4711\n",
    "proc/pressure/memory": "some avg10=12.50 avg60=0 avg300=0 total=1\nfull avg10=2.50 avg60=0 total=1\n",
}


def test_a_machine_says_what_is_left_of_it(tmp_path: Path) -> None:
    reading = read_host(machine(tmp_path, PLAIN))

    assert (reading.total_bytes, reading.available_bytes) == (16 * GB, 8 * GB)
    assert (reading.memory_stalled, reading.all_stalled) == (0.125, 0.025)
    assert (reading.swapped_pages, reading.load) == (4711, 3.5)


def test_a_container_has_what_its_group_leaves_it(tmp_path: Path) -> None:
    group = {
        "proc/self/cgroup": "0::/jobs/one\n",
        "sys/fs/cgroup/jobs/memory.max": f"{4 * GB}\n",
        "sys/fs/cgroup/jobs/memory.current": f"{3 * GB}\n",
        "sys/fs/cgroup/jobs/memory.stat": f"anon 1\ninactive_file {GB}\n",
        "sys/fs/cgroup/jobs/one/memory.max": "max\n",
        "sys/fs/cgroup/jobs/one/memory.current": "1\n",
    }

    reading = read_host(machine(tmp_path, PLAIN | group))

    assert (reading.total_bytes, reading.available_bytes) == (4 * GB, 2 * GB)


def test_groups_of_the_first_version_count_too(tmp_path: Path) -> None:
    group = {
        "proc/self/cgroup": "5:devices:/\\n4:memory:/box\\n0::/\\n".replace("\\n", "\n"),
        "sys/fs/cgroup/memory/box/memory.limit_in_bytes": f"{2 * GB}\n",
        "sys/fs/cgroup/memory/box/memory.usage_in_bytes": f"{GB}\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GB}\n",
    }

    reading = read_host(machine(tmp_path, PLAIN | group))

    assert (reading.total_bytes, reading.available_bytes) == (2 * GB, GB)


def test_a_machine_without_such_files_says_nothing(tmp_path: Path) -> None:
    reading = read_host(tmp_path)

    assert reading == HostReading(cores=reading.cores, most_files=reading.most_files)


def test_this_machine_says_something_that_makes_sense() -> None:
    reading = read_host()

    assert reading.cores >= 1
    assert reading.open_files is None or reading.open_files > 0
    if reading.total_bytes is not None and reading.available_bytes is not None:
        assert 0 < reading.available_bytes <= reading.total_bytes
