"""Settings of the plugin."""

from __future__ import annotations

from pydantic import Field

from nanobot_core import PluginSettings


class CronSettings(PluginSettings):
    """Section ``cron``.

    Attributes:
        max_jobs: how many jobs there can be.
        max_jobs_per_guest: how many of them one guest can have.
        min_interval_s: shortest interval between two runs of a job.
        min_trigger_interval_s: a job that starts on events starts at most once in this time;
            further events are joined.
        max_runs: how many runs are under way at the same time; further ones wait.
        catch_ups_per_s: how many missed runs start within a second after a pause.
    """

    max_jobs: int = Field(default=10_000, ge=1, le=100_000)
    max_jobs_per_guest: int = Field(default=50, ge=0)
    min_interval_s: float = Field(default=60.0, ge=1)
    min_trigger_interval_s: float = Field(default=60.0, ge=1)
    max_runs: int = Field(default=8, ge=1)
    catch_ups_per_s: int = Field(default=5, ge=1, le=1000)
