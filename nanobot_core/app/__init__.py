"""The application: where everything is put together, started and stopped."""
