"""Hooks of mkdocs: patterns in the navigation, the changelog as a page, links out of the docs.

Pages are written to be read in the repository as well. There a link may lead to a source file or a
test, which the site does not have: here it becomes plain code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(
    r"(?<!!)\[(?P<text>[^\]\n]+)\]\((?P<target>(?!https?:|#|mailto:)[^)#\s]+)(?:#[^)]*)?\)"
)
CHANGELOG = "changelog.md"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace patterns in the navigation by the pages that they stand for."""
    docs = Path(config.docs_dir)
    config.nav = [*_expanded(config.nav or [], docs, _named(config.nav))]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the changelog, which is beside the docs."""
    text = (ROOT / "CHANGELOG.md").read_text().replace("](docs/", "](")
    files.append(File.generated(config, CHANGELOG, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Write links to files that are not in the docs as code."""
    folder = PurePosixPath(page.file.src_uri).parent

    def written(link: re.Match[str]) -> str:
        return link[0] if _is_inside(folder, link["target"]) else _as_code(link["text"])

    return LINK.sub(written, markdown)


def _is_inside(folder: PurePosixPath, target: str) -> bool:
    """Return whether a link of a page in a folder of the docs leads to a file of the docs."""
    depth = len(folder.parts)
    for part in PurePosixPath(target).parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            return False
    return True


def _as_code(text: str) -> str:
    return text if "`" in text else f"`{text}`"


def _named(nav: Any) -> set[str]:
    """Return the pages that a navigation names itself."""
    if isinstance(nav, str):
        return set() if "*" in nav else {nav}
    entries = nav.values() if isinstance(nav, dict) else nav or ()
    return {page for entry in entries for page in _named(entry)}


def _expanded(nav: list[Any], docs: Path, named: set[str]) -> Iterator[Any]:
    for entry in nav:
        if isinstance(entry, dict):
            yield {
                title: [*_expanded(inner, docs, named)] if isinstance(inner, list) else inner
                for title, inner in entry.items()
            }
        elif "*" in entry:
            pages = [path.relative_to(docs).as_posix() for path in docs.glob(entry)]
            yield from sorted({*pages} - named, key=_readme_first)
        else:
            yield entry


def _readme_first(page: str) -> tuple[bool, str]:
    return not page.endswith("README.md"), page
