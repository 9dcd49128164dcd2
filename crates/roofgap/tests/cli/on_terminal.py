"""Runs a program on a terminal of 80 columns and copies what it prints to the standard output. Questions are answered with ANSWER."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

master, slave = pty.openpty()
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
child = subprocess.Popen(
    sys.argv[1:],
    stdin=slave,
    stdout=slave,
    stderr=slave,
    start_new_session=True,
    # So that the program can open it as /dev/tty.
    preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
)
os.close(slave)
while True:
    try:
        block = os.read(master, 65536)
    except OSError:
        break
    if not block:
        break
    sys.stdout.buffer.write(block)
    if b"[y/N]" in block:
        os.write(master, os.environ["ANSWER"].encode() + b"\n")
sys.stdout.flush()
sys.exit(child.wait())
