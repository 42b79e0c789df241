"""nanobot in editors that speak the Agent Client Protocol."""
