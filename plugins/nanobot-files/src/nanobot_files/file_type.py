"""Names for kinds of files, as ``grep`` takes them."""

from __future__ import annotations

from nanobot_core import ToolInputError

_TYPES = {
    "c": "*.{c,h}",
    "cpp": "*.{cc,cpp,cxx,hh,hpp,hxx,h}",
    "cs": "*.cs",
    "css": "*.{css,scss,sass,less}",
    "csv": "*.{csv,tsv}",
    "go": "*.go",
    "html": "*.{html,htm}",
    "java": "*.java",
    "js": "*.{js,jsx,mjs,cjs}",
    "json": "*.{json,jsonl,ndjson}",
    "kotlin": "*.{kt,kts}",
    "lua": "*.lua",
    "make": "{Makefile,makefile,GNUmakefile,*.mk}",
    "md": "*.{md,markdown,mdx}",
    "php": "*.php",
    "py": "*.{py,pyi}",
    "rb": "*.rb",
    "rs": "*.rs",
    "sh": "*.{sh,bash,zsh,fish}",
    "sql": "*.sql",
    "swift": "*.swift",
    "toml": "*.toml",
    "ts": "*.{ts,tsx,mts,cts}",
    "txt": "*.{txt,rst,log}",
    "xml": "*.{xml,xsd,xsl,svg}",
    "yaml": "*.{yaml,yml}",
}


def pattern_of_type(name: str) -> str:
    """Return the path pattern of a kind of file.

    Raises:
        ToolInputError: there is no such kind.
    """
    if name not in _TYPES:
        raise ToolInputError(f"there is no file type '{name}'; use one of {', '.join(_TYPES)}")
    return _TYPES[name]
