"""What a plugin implements: one module for each kind of contribution."""
