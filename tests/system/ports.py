# SPDX-License-Identifier: Apache-2.0
"""Ports of this machine for the services that a test starts."""
import socket


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
