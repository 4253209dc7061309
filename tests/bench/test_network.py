"""The network of the test bed: the switch by itself and over sockets, and hosts that reach each other."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest

from bench.network.bed import bed as make_bed
from bench.network.disturbances import ALL, UNDISTURBED, Disturbance, Disturber
from bench.network.hosts import NotPermitted, refusal
from bench.network.run_log import EVENTS, Log
from bench.network.switch import Switch, serve

BROADCAST = b"\xff" * 6


def address(port):
    return bytes([2, 0, 0, 0, 0, port])


def frame(source, target, content=b"content"):
    """An Ethernet frame between two ports' addresses; None: to all."""
    return (BROADCAST if target is None else address(target)) + address(source) + content


# -- the switch by itself ---------------------------------------------------------------------------------


def test_a_frame_to_somebody_unknown_goes_to_all_and_then_to_one():
    switch = Switch(4, seed=0)
    switch.take(2, frame(2, 0), now=0.0)
    assert switch.due(0.0) == [(port, frame(2, 0)) for port in (0, 1, 3)]
    switch.take(0, frame(0, 2), now=1.0)
    assert switch.due(1.0) == [(2, frame(0, 2))]
    switch.take(2, frame(2, 0), now=2.0)
    assert switch.due(2.0) == [(0, frame(2, 0))]


def test_a_broadcast_goes_to_all_others_always():
    switch = Switch(3, seed=0)
    for _ in range(2):
        switch.take(1, frame(1, None), now=0.0)
        assert [port for port, _ in switch.due(0.0)] == [0, 2]


def test_a_host_that_moves_is_found_at_its_new_port():
    switch = Switch(3, seed=0)
    switch.take(0, frame(7, None), now=0.0)
    switch.take(1, frame(7, None), now=0.0)
    switch.due(0.0)
    switch.take(2, frame(2, 7), now=0.0)
    assert switch.due(0.0) == [(1, frame(2, 7))]


def test_a_delay_holds_frames_back_and_keeps_their_order():
    switch = Switch(2, seed=0)
    switch.delay = 0.05
    sent = [frame(0, None, b"%d" % number) for number in range(20)]
    for number, each in enumerate(sent):
        switch.take(0, each, now=number * 0.001)
    assert switch.wait(now=0.02) == pytest.approx(0.03)
    assert switch.due(now=0.0499) == []
    assert [content for _, content in switch.due(now=0.0505)] == sent[:1]
    assert [content for _, content in switch.due(now=1.0)] == sent[1:]
    assert switch.wait(now=1.0) is None


def test_a_shorter_delay_applies_to_later_frames_only():
    switch = Switch(2, seed=0)
    switch.delay = 1.0
    switch.take(0, frame(0, None, b"early"), now=0.0)
    switch.change(delay=0.0, loss=0.0, cut=[])
    switch.take(0, frame(0, None, b"late"), now=0.1)
    assert [content[12:] for _, content in switch.due(now=2.0)] == [b"late", b"early"]


@pytest.mark.parametrize("seed", [0, 1])
def test_the_share_of_lost_frames_is_that_asked_for(seed):
    """20,000 independent draws with probability 0.05: a standard deviation of 31; six of them are allowed."""
    switch = Switch(2, seed)
    switch.loss = 0.05
    for _ in range(20_000):
        switch.take(0, frame(0, None), now=0.0)
    assert len(switch.due(0.0)) + switch.counts["lost"] == 20_000
    assert abs(switch.counts["lost"] - 1000) < 6 * 31


def test_the_seed_fixes_which_frames_are_lost():
    def carried(seed):
        switch = Switch(2, seed)
        switch.loss = 0.5
        for number in range(100):
            switch.take(0, frame(0, None, b"%d" % number), now=0.0)
        return switch.due(0.0)

    assert carried(3) == carried(3) != carried(4)


def test_a_partition_stops_frames_between_its_sides_and_those_on_their_way():
    switch = Switch(4, seed=0)
    switch.delay = 1.0
    switch.take(0, frame(0, None), now=0.0)
    switch.change(delay=0.0, loss=0.0, cut=[2, 3])
    assert [port for port, _ in switch.due(1.0)] == [1]
    switch.take(2, frame(2, None), now=2.0)
    assert [port for port, _ in switch.due(2.0)] == [3]
    assert switch.change(delay=0.0, loss=0.0, cut=[]) == {"carried": 2, "lost": 0, "cut": 4}
    switch.take(2, frame(2, None), now=3.0)
    assert [port for port, _ in switch.due(3.0)] == [0, 1, 3]


# -- the switch with sockets for cables -------------------------------------------------------------------


@contextmanager
def served(ports, seed=0):
    """A switch on a thread: the hosts' ends of its cables, and a function that changes it."""
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(ports)]
    commands, answers = os.pipe(), os.pipe()
    fds = [inner.fileno() for inner, _ in pairs]
    thread = threading.Thread(target=serve, args=(fds, Switch(ports, seed), commands[0], answers[1]))
    thread.start()

    def change(**settings):
        os.write(commands[1], json.dumps({"delay": 0.0, "loss": 0.0, "cut": []} | settings).encode() + b"\n")
        return json.loads(os.read(answers[0], 4096))

    hosts = [outer for _, outer in pairs]
    for host in hosts:
        host.settimeout(20)
    try:
        yield hosts, change
    finally:
        os.close(commands[1])
        thread.join()
        for inner, outer in pairs:
            inner.close()
            outer.close()
        for fd in (commands[0], *answers):
            os.close(fd)


def test_frames_pass_between_sockets():
    with served(3) as (hosts, change):
        hosts[0].send(frame(0, None, b"who is there?"))
        assert hosts[1].recv(100) == hosts[2].recv(100) == frame(0, None, b"who is there?")
        hosts[2].send(frame(2, 0, b"I am"))
        assert hosts[0].recv(100) == frame(2, 0, b"I am")
        assert change() == {"carried": 3, "lost": 0, "cut": 0}


def test_a_partition_is_made_and_ended_at_run_time():
    with served(2) as (hosts, change):
        change(cut=[1])
        hosts[0].send(frame(0, None, b"during"))
        hosts[1].send(frame(1, None, b"during"))
        stopped = 0
        while stopped < 2:  # until the switch has read both
            counts = change(cut=[1])
            assert counts["carried"] == 0
            stopped += counts["cut"]
        change()
        hosts[0].send(frame(0, None, b"after"))
        assert hosts[1].recv(100)[12:] == b"after"


# -- hosts ------------------------------------------------------------------------------------------------

REFUSAL = refusal()
needs_namespaces = pytest.mark.skipif(bool(REFUSAL), reason=REFUSAL or "namespaces can be made")
ANSWER = """
import socket
server = socket.create_server(("", 7000))
print("listening", flush=True)
while True:
    server.accept()[0].sendall(b"hello")
"""
CALL = """
import socket, sys
connection = socket.create_connection((sys.argv[1], 7000), timeout=float(sys.argv[2]))
print(connection.recv(10).decode())
"""


def call(host, other, patience=30.0):
    """What a program in one host hears from the program in another, "" if nothing."""
    command = host.command([sys.executable, "-c", CALL, other.address, str(patience)])
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()


def listening(host):
    process = host.start("answer", [sys.executable, "-c", ANSWER], os.environ)
    while "listening" not in host.log("answer"):
        assert process.poll() is None, host.log("answer")
    return process


@needs_namespaces
def test_hosts_reach_each_other_through_the_switch_and_not_across_a_partition():
    with make_bed(["a", "b", "c"]) as bed:
        a, b, c = bed.hosts.values()
        for host in (a, b):
            listening(host)  # the same port on both: each host has its own
        assert call(a, b) == call(c, b) == call(b, a) == "hello"
        assert bed.change(cut=["b"])["carried"] > 0
        assert call(a, b, patience=0.5) == ""
        assert call(c, a) == "hello"
        assert bed.change(delay=0.01, loss=0.2)["cut"] > 0
        assert call(a, b) == "hello"  # TCP sends again what is lost


@needs_namespaces
def test_a_disturber_begins_and_ends_a_partition():
    with make_bed(["a", "b"]) as bed:
        a, b = bed.hosts.values()
        listening(b)
        disturber = Disturber(bed, Disturbance("trial", "a short partition", cut=1e-6), "b")
        disturber.look(iteration=3)
        assert call(a, b) == "hello"
        disturber.look(iteration=4)
        assert call(a, b, patience=0.5) == ""
        assert not disturber.healed
        disturber.look(iteration=4)
        assert disturber.healed
        assert call(a, b) == "hello"
        disturber.end()
        assert disturber.counts["cut"] > 0


@needs_namespaces
def test_a_host_has_its_own_monotonic_clock_processes_and_folder():
    with make_bed(["a", "b"], ahead={"b": 7200.0}) as bed:
        a, b = bed.hosts.values()
        code = (
            "import os, time; print(time.monotonic(), sum(name.isdecimal() for name in os.listdir('/proc')))"
        )
        seen = [
            subprocess.run(
                host.command([sys.executable, "-c", code]), check=True, capture_output=True, text=True
            ).stdout.split()
            for host in (a, b)
        ]
        assert 7000 < float(seen[1][0]) - float(seen[0][0]) < 7400
        assert [int(count) for _, count in seen] == [2, 2]  # its first process and this one
        subprocess.run(a.command(["touch", str(a.shared / "mine")]), check=True)
        assert (a.own / "mine").exists()
        assert not (b.own / "mine").exists()


@needs_namespaces
def test_nothing_is_left_when_the_bed_is_killed():
    code = (
        "from bench.network.bed import bed\n"
        "import os, time\n"
        "with bed(['a']) as made:\n"
        "    process = made.hosts['a'].start('sleep', ['sleep', '1000'], os.environ)\n"
        "    print(made.hosts['a']._first, made._switch.pid, process.pid, made.folder, flush=True)\n"
        "    time.sleep(1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        *pids, folder = process.stdout.readline().split()
        process.kill()
    patience = monotonic() + 60.0  # far more than it takes
    left = pids
    while left and monotonic() < patience:
        left = [pid for pid in left if _state(pid) != "Z"]
    assert not left
    subprocess.run(["rm", "-r", folder], check=True)


def _state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def test_without_namespaces_hosts_are_addresses_and_say_what_is_left_out():
    with make_bed(["a", "b"], loopback=True) as bed:
        assert [host.address for host in bed.hosts.values()] == ["127.0.0.1", "127.0.0.2"]
        process = listening(bed.hosts["b"])
        assert call(bed.hosts["a"], bed.hosts["b"]) == "hello"
        with pytest.raises(NotPermitted, match="no switch here: asked for"):
            bed.change(delay=0.1)
        reasons = {each.name: each.not_here(bed) for each in (UNDISTURBED, *ALL)}
    assert process.poll() is not None
    assert {name for name, reason in reasons.items() if "no namespaces here: asked for" in reason} == {
        "delay", "loss", "partition", "together", "monotonic",
    }  # fmt: skip
    assert reasons["none"] == reasons["dead-head"] == ""


# -- what a run tells -------------------------------------------------------------------------------------


def test_the_log_of_a_run_is_read_line_by_line(tmp_path):
    log = Log(tmp_path)
    log.read()
    assert (log.events, log.iteration, log.last("end")) == ([], 0, None)
    with (tmp_path / EVENTS).open("w", encoding="utf-8") as file:
        print(json.dumps({"event": "worker-lost", "iteration": 3}), file=file)
        print('{"event": "end", ', end="", file=file, flush=True)
        log.read()
        assert (log.count("worker-lost"), log.iteration, log.last("end")) == (1, 3, None)
        print('"iteration": 5}', file=file, flush=True)
        log.read()
    assert log.last("end") == {"event": "end", "iteration": 5}
    assert log.count("worker-lost") == 1
