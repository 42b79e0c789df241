"""The tests of a stranger's package run where it is installed: tests/integration."""

collect_ignore = ["parley"]
