import json
import re
from html.parser import HTMLParser

import msgspec
import pytest
from report_example import comparison
from report_variants import EVIL, VARIANTS, hostile, virtual_time

from loadgen.records import Report
from loadgen.report import as_html, page as shared

VOID = {"meta", "br", "img", "link", "hr", "input"}


class Page(HTMLParser):
    """What a browser would see: elements, attributes, text, scripts; complains about what is not nested."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[self.tags[-1][1].get("id") or f"script {len(self.scripts)}"] = data
        elif self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def attributes(self, name: str) -> list[str]:
        return [value for _, attrs in self.tags if (value := attrs.get(name)) is not None]


@pytest.fixture(scope="module")
def pages() -> dict[str, Page]:
    return {name: Page(as_html.render(make())) for name, make in VARIANTS.items()}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_page_is_well_formed_and_its_links_lead_somewhere(name: str, pages: dict[str, Page]) -> None:
    page = pages[name]
    assert page.open == []
    ids = page.attributes("id")
    assert len(ids) == len(set(ids))
    assert set(page.attributes("aria-labelledby")) <= set(ids)
    assert page.attributes("href")
    assert {link.removeprefix("#") for link in page.attributes("href")} <= set(ids)
    assert next(tag for tag, _ in page.tags if tag in {"h1", "h2"}) == "h1"


@pytest.mark.parametrize("name", VARIANTS)
def test_the_page_asks_the_network_for_nothing(name: str, pages: dict[str, Page]) -> None:
    page = pages[name]
    assert not page.attributes("src")
    assert not {tag for tag, _ in page.tags} & {"link", "img", "iframe", "object", "base"}
    assert all(link.startswith("#") for link in page.attributes("href"))
    policies = [a["content"] for tag, a in page.tags if tag == "meta" and a.get("http-equiv")]
    assert policies
    assert str(policies[0]).startswith("default-src 'none'")
    assert "http" not in shared.asset("page.css")
    assert "http" not in shared.asset("page.js")


@pytest.mark.parametrize("name", VARIANTS)
def test_the_record_is_embedded_whole(name: str, pages: dict[str, Page]) -> None:
    assert msgspec.json.decode(pages[name].scripts["report-data"], type=Report) == VARIANTS[name]()


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "empty_stages"])
def test_every_figure_has_its_place(name: str, pages: dict[str, Page]) -> None:
    page = pages[name]
    figures = json.loads(page.scripts["figures"])
    places = [attrs["id"] for tag, attrs in page.tags if attrs.get("class") == "chart"]
    assert list(figures) == places
    assert any("plotly.js" in script[:200] for script in page.scripts.values())


def test_without_curves_plotly_stays_out() -> None:
    source = as_html.render(VARIANTS["empty_stages"]())
    assert len(source) < 50_000
    assert "figures" not in Page(source).scripts


def test_the_verdict_is_said_in_words_before_anything_else(pages: dict[str, Page]) -> None:
    text = pages["comparison"].text
    order = [text.index(said) for said in ("does not pay", "trade-off", "1.36× (1.28–1.45)", "Why: four causes")]
    assert order == sorted(order)


def test_names_stay_names(pages: dict[str, Page]) -> None:
    page = pages["hostile"]
    assert not [attrs for _, attrs in page.tags if any(name.startswith("on") for name in attrs)]
    assert re.sub(r"\s+", " ", EVIL) in page.text
    assert "<b>full</b>" in page.text
    assert [attrs for tag, attrs in page.tags if tag == "script" and attrs.get("type") != "application/json"] == [
        {},
        {},
    ]
    assert "\x1b" not in page.text


def test_plotly_gets_names_that_it_shows_literally() -> None:
    figures = json.loads(Page(as_html.render(hostile())).scripts["figures"])
    names = {trace["name"] for figure in figures.values() for trace in figure["data"] if "name" in trace}
    assert names
    assert all("<" not in name for name in names)


def test_a_simulated_report_says_so() -> None:
    page = as_html.render(msgspec.structs.replace(comparison(), simulated=True))
    assert Page(page).text.count("SIMULATED: ") == 2, "in the title and in the bar that stays in sight"
    assert '<p class="simulated">' in page
    assert '<p class="simulated">' not in as_html.render(comparison())


def test_virtual_time_says_that_no_server_ran_and_no_client() -> None:
    source = as_html.render(virtual_time())
    assert "<title>SIMULATED: " in source
    assert '<p class="simulated">SIMULATED: no server ran; these figures follow from profile h100' in source
    assert "No client existed" in Page(source).text
