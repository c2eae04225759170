"""The ports that are chosen for servers which cannot choose one."""

from __future__ import annotations

import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from plumbline.servers.ports import FIRST, LAST, OF_A_PROCESS, free_ports

CHOICE = "from plumbline.servers.ports import free_ports; print(*(free_ports(1)[0] for _ in range(20)))"
UNTIL_INPUT_ENDS = "; import sys; sys.stdout.flush(); sys.stdin.read()"


def test_no_outgoing_connection_gets_one() -> None:
    assert all(FIRST <= port <= LAST < 32768 for port in free_ports(5))


def test_ports_chosen_together_or_one_after_the_other_are_different() -> None:
    chosen = [*free_ports(10), *free_ports(10)]
    assert len({*chosen}) == len(chosen)


def test_threads_of_a_process_choose_different_ones() -> None:
    with ThreadPoolExecutor(8) as threads:
        chosen = [*chain.from_iterable(threads.map(free_ports, [2] * 16))]
    assert len({*chosen}) == len(chosen)


def test_processes_that_choose_at_the_same_time_choose_different_ones() -> None:
    command = [sys.executable, "-c", CHOICE + UNTIL_INPUT_ENDS]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    chosen = [port for process in processes if process.stdout for port in process.stdout.readline().split()]
    for process in processes:
        process.communicate()
    assert len(chosen) == 80
    assert len({*chosen}) == len(chosen)


def test_a_process_has_ports_of_its_own_whatever_its_number_is() -> None:
    """Two runs have many processes, and the ids of two of them may begin at the same range."""
    (mine,) = free_ports(1)
    first = FIRST + (mine - FIRST) // OF_A_PROCESS * OF_A_PROCESS
    alike = f"import os; os.getpid = lambda: {first // OF_A_PROCESS - FIRST // OF_A_PROCESS}; {CHOICE}"
    chosen = subprocess.run(
        [sys.executable, "-c", alike], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    assert not {int(port) for port in chosen.split()} & {*range(first, first + OF_A_PROCESS)}


def test_a_port_that_something_listens_on_is_passed_over() -> None:
    (free,) = free_ports(1)
    with socket.create_server(("127.0.0.1", free)):
        assert free not in free_ports(OF_A_PROCESS)


def test_where_all_are_taken_the_system_chooses() -> None:
    chosen = free_ports(OF_A_PROCESS + 1)
    assert len({*chosen}) == len(chosen)
    assert not all(FIRST <= port <= LAST for port in chosen)
