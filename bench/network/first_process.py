"""The first process of a host of the test bed: `python first_process.py ADDRESS/BITS OWN SHARED`.

It runs in namespaces of its own. It makes the host's network card, a TAP device, whose other end it sends
through its standard input, a socket; binds the folder OWN to the place SHARED, which every host has and sees
its own content in; and waits until the other end of the socket is closed. With it end all processes of the
host and its network, whatever happened to the test bed. Only the standard library: it starts in a moment.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys

TUNSETIFF = 0x400454CA
TAP_WITHOUT_HEADER = 0x0002 | 0x1000
CARD = "eth0"


def network_card() -> int:
    """Make the TAP device; return the descriptor on which its frames are read and written."""
    fd = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", CARD.encode(), TAP_WITHOUT_HEADER))
    return fd


def configure(address: str) -> None:
    """Bring up the card and the loopback interface."""
    for arguments in (
        ["address", "add", address, "dev", CARD],
        ["link", "set", CARD, "up"],
        ["link", "set", "lo", "up"],
        ["route", "add", "default", "dev", CARD],  # programs ask which address leads outside
    ):
        subprocess.run(["ip", *arguments], check=True)


if __name__ == "__main__":
    with socket.socket(fileno=os.dup(0)) as other:
        card = network_card()
        configure(sys.argv[1])
        subprocess.run(["mount", "--bind", sys.argv[2], sys.argv[3]], check=True)
        socket.send_fds(other, [b"up"], [card])
        os.close(card)  # else it would outlive the switch's end
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans come here and must not stay as zombies
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the test bed, which cleans up
        other.recv(1)
