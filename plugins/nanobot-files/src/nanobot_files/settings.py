"""Settings of the file tools."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from nanobot_core import PluginSettings


class FilesSettings(PluginSettings):
    """Section ``tools.files``. ``tools.restrict_to_workspace`` is in the core's section."""

    extra_read_roots: tuple[Path, ...] = ()
    """Folders other than the workspace that the owner's calls may read without asking."""

    extra_write_roots: tuple[Path, ...] = ()
    """Folders other than the workspace that the owner's calls may read and write without asking."""

    max_page_chars: int = Field(default=15_000, ge=1_000, le=1_000_000)
    """Characters in one answer of ``read_file``, ``grep``, ``glob`` or ``list_dir``."""

    max_edit_bytes: int = Field(default=10_000_000, ge=1_000)
    """Size of the largest file that is edited."""

    max_image_bytes: int = Field(default=5_000_000, ge=1_000)
    """Size of the largest image that the model is shown."""

    max_document_bytes: int = Field(default=50_000_000, ge=1_000)
    """Size of the largest PDF or office document that is read."""

    document_timeout_s: float = Field(default=30.0, gt=0, le=600)
    """Seconds that turning one document into text may take."""

    search_timeout_s: float = Field(default=10.0, gt=0, le=600)
    """Seconds that one call of ``grep``, ``glob`` or ``list_dir`` may take."""
