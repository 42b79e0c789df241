"""The plugin host: discovery, activation, generations, reports."""
