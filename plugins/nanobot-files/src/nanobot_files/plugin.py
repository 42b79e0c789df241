"""Entry point: the hooks that the plugin implements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nanobot_core import LazyTool, SettingsSection, on

if TYPE_CHECKING:
    from nanobot_core import PluginContext


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    """Declare the settings section."""
    return (
        SettingsSection(
            "tools.files",
            "nanobot_files.settings:FilesSettings",
            environment=("PATH",),
        ),
    )


@on.contribute_tools
def contribute_tools(ctx: PluginContext) -> Iterable[LazyTool]:
    """Contribute the eight tools; their code is imported at their first call."""
    return (
        LazyTool("apply_patch", "nanobot_files.apply_patch:ApplyPatchTool"),
        LazyTool("edit_file", "nanobot_files.edit_file:EditFileTool"),
        LazyTool("glob", "nanobot_files.listing:GlobTool"),
        LazyTool("grep", "nanobot_files.grep:GrepTool"),
        LazyTool("list_dir", "nanobot_files.listing:ListDirTool"),
        LazyTool("notebook_edit", "nanobot_files.notebook_edit:NotebookEditTool"),
        LazyTool("read_file", "nanobot_files.read_file:ReadFileTool"),
        LazyTool("write_file", "nanobot_files.write_file:WriteFileTool"),
    )
