"""Links of the documentation lead to files, and the book has every page."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# The target of `[text](target)` and of `![text](target)`; code may hold brackets and is left out.
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def links(page: pathlib.Path) -> list[str]:
    """Returns the targets of a page that are not addresses of other sites."""
    targets = LINK.findall(CODE.sub("", page.read_text(encoding="utf-8")))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(page: pathlib.Path) -> set[str]:
    """Returns the names of the headings of a page, as the renderers of Markdown make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


class Links(unittest.TestCase):
    def test_links_lead_to_files_and_headings(self):
        pages = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted(DOCS.rglob("*.md"))]
        dead = []
        for page in pages:
            for target in links(page):
                path, _, anchor = target.partition("#")
                found = (page.parent / path).resolve() if path else page
                if not found.exists() or (anchor and found.suffix == ".md" and anchor not in anchors(found)):
                    dead.append(f"{page.relative_to(ROOT)}: {target}")
        self.assertEqual(dead, [])

    def test_the_book_has_every_page_once(self):
        listed = links(DOCS / "SUMMARY.md")
        pages = [page.name for page in DOCS.glob("*.md") if page.name != "SUMMARY.md"]
        self.assertEqual(sorted(target for target in listed if "/" not in target), sorted(pages))
        self.assertEqual(len(listed), len(set(listed)))

    def test_links_of_the_book_stay_in_it(self):
        listed = [DOCS / target for target in links(DOCS / "SUMMARY.md")]
        for page in listed:
            for target in links(page):
                found = (page.parent / target.partition("#")[0]).resolve()
                inside = found in listed or (found.suffix != ".md" and found.is_file() and DOCS in found.parents)
                self.assertTrue(inside or target.startswith("#"), f"{page.relative_to(ROOT)}: {target}")


if __name__ == "__main__":
    unittest.main()
