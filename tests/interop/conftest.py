# SPDX-License-Identifier: Apache-2.0
"""The fixtures and the list of skips of the system tests, for the tests with other people's messages and programs."""
import importlib.util
import pathlib
import sys

SYSTEM = pathlib.Path(__file__).resolve().parents[1] / "system"
sys.path.insert(0, str(SYSTEM))
_spec = importlib.util.spec_from_file_location("system_conftest", SYSTEM / "conftest.py")
_system = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_system)
naos, shared, pytest_terminal_summary = _system.naos, _system.shared, _system.pytest_terminal_summary
