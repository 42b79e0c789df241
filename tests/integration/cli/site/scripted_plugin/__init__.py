"""A plugin for tests of the command line: a provider whose answers the message asks for."""
