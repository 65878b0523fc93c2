"""The report in a real browser: it loads without errors, search and selection work.

Pictures of it are left in build/report to be looked at.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tosaic
from report_pages import deep_page
from tosaic.cli.examples import example
from tosaic.report import html
from tosaic.search.evaluate import Disagreement, Evaluation, Score
from tosaic.search.front import Row
from tosaic.search.judge import picture
from tosaic.search.tune import Sweep
from tosaic.search.writers import write
from zoo import build, missing

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
)
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
if BROWSER is None:
    pytest.skip("there is no Chromium: make browser", allow_module_level=True)

PICTURES = Path(__file__).resolve().parents[2] / "build" / "report"


class Visit:
    """A page in the browser, and what it complained of."""

    def __init__(self, browser: Any, path: Path, scheme: str = "light") -> None:
        size = {"width": 1440, "height": 960}
        self.page = browser.new_page(viewport=size, color_scheme=scheme, reduced_motion="reduce")
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on("request", lambda request: self.asked.append(request.url))
        start = time.monotonic()
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready=yes]", state="attached", timeout=20_000)
        self.seconds = time.monotonic() - start

    def picture(self, name: str) -> None:
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.wait_for_timeout(100)
        self.page.screenshot(path=PICTURES / f"{name}.png", full_page=True)

    def text(self, selector: str) -> str:
        found: str = self.page.inner_text(selector)
        return found

    def search(self, words: str) -> None:
        self.page.keyboard.press("/")
        self.page.keyboard.type(words)
        self.page.keyboard.press("Enter")

    def shown(self, selector: str) -> bytes:
        """The picture that a canvas has."""
        self.page.wait_for_timeout(60)
        found: bytes = self.page.locator(selector).screenshot()
        return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    net, inputs, data = example("encoder")
    art = tosaic.compile(net, inputs, target="ethos-u55-128", calibration=data)
    path = tmp_path_factory.mktemp("browser") / "transformer.html"
    art.save(path, model=net, inputs=data[:1], title="Transformer")
    return path


@pytest.mark.skipif(bool(missing("mobilenet_v2")), reason="the zoo's photographs are missing")
def test_mobilenet_v2_loads_without_a_complaint_in_both_themes(
    browser: Any, tmp_path: Path
) -> None:
    net, inputs, data = build("mobilenet_v2")
    art = tosaic.compile(net, inputs, target="ethos-u55-128", calibration=data[:4])
    art.save(tmp_path / "r.html", model=net, inputs=data[:1])
    for scheme in ("light", "dark"):
        visit = Visit(browser, tmp_path / "r.html", scheme)
        visit.picture(f"mobilenet_v2-{scheme}")
        assert visit.complaints == []
        assert visit.asked == [(tmp_path / "r.html").as_uri()]
        assert visit.page.title() == "MobileNetV2 on ethos-u55-128"
        npu = art.report.delegates[0].estimate
        assert npu is not None
        assert f"{npu.scratch:,} bytes" in visit.text("#cards")
        assert visit.page.locator("#treemap button").count() > 50
        assert visit.page.evaluate("document.body.scrollWidth <= innerWidth")
        visit.page.close()


def test_search_selects_and_the_details_follow(browser: Any, transformer: Path) -> None:
    visit = Visit(browser, transformer)
    assert "Nothing selected" in visit.text("#details")
    before = visit.shown("#canvas")
    visit.search("attention layers.1")
    assert visit.text("#details h2") == "scaled_dot_product_attention"
    assert "0.layers.1.self_attn" in visit.text("#details")
    assert "SQNR" in visit.text("#details")
    assert visit.shown("#canvas") != before
    visit.page.keyboard.press("ArrowDown")  # along an edge of the graph
    assert visit.text("#details h2") == "linear"
    visit.page.keyboard.press("ArrowUp")
    assert visit.text("#details h2") == "scaled_dot_product_attention"
    visit.picture("transformer")
    visit.page.keyboard.press("Escape")
    assert "Nothing selected" in visit.text("#details")
    visit.search("no such thing anywhere")
    assert "Nothing has all of these words" in visit.text("#found")
    assert visit.complaints == []
    visit.page.close()


def test_every_picture_selects_the_same_thing(browser: Any, transformer: Path) -> None:
    visit = Visit(browser, transformer)
    largest = visit.page.locator("#treemap button").first
    name = largest.locator("b").inner_text()
    largest.click()
    assert visit.text("#details h2") == name
    assert visit.page.locator("#treemap button.on").count() == 1
    visit.page.keyboard.press("Escape")
    visit.page.locator("#accuracybody tr.link").first.click()
    assert visit.text("#details h2") != "Nothing selected"
    assert visit.page.locator("#rangebody .range.on").count() >= 1
    box = visit.page.locator("#canvas").bounding_box()
    visit.page.locator("#canvas").scroll_into_view_if_needed()
    visit.page.keyboard.press("Escape")
    visit.page.evaluate("document.getElementById('graph').scrollIntoView()")
    visit.page.click("#zoom button:last-child")
    box = visit.page.locator("#canvas").bounding_box()
    visit.page.locator("#canvas").dblclick(position={"x": box["width"] / 2, "y": box["height"] / 2})
    assert visit.complaints == []
    visit.page.close()


def test_the_graph_moves_zooms_and_opens_into_operators(browser: Any, transformer: Path) -> None:
    visit = Visit(browser, transformer)
    seen = [visit.shown("#canvas")]

    def changed() -> bool:
        seen.append(visit.shown("#canvas"))
        return seen[-1] not in seen[:-1]

    box = visit.page.locator("#canvas").bounding_box()
    x, y = box["x"] + 60, box["y"] + 200
    visit.page.mouse.move(x, y)
    visit.page.mouse.down()
    visit.page.mouse.move(x + 80, y - 60, steps=4)
    visit.page.mouse.up()
    assert changed()
    visit.page.mouse.wheel(0, 200)
    assert changed()
    visit.page.click("#zoom button:nth-child(2)")
    assert changed()
    visit.page.click("#colour button:nth-child(2)")
    assert changed()
    visit.page.click("#view button:last-child")
    assert changed()
    visit.search("MATMUL")
    visit.page.click("#view button:last-child")
    visit.picture("transformer-operators")
    assert visit.complaints == []
    visit.page.close()


def test_a_thousand_nodes_load_and_answer_quickly(browser: Any, tmp_path: Path) -> None:
    page = deep_page(1200)
    path = tmp_path / "deep.html"
    path.write_text(html(page), encoding="utf-8")
    visit = Visit(browser, path)
    assert visit.seconds < 15
    spent = visit.page.evaluate("""async () => {
      const canvas = document.getElementById("canvas"), box = canvas.getBoundingClientRect();
      const place = { clientX: box.left + 90, clientY: box.top + 90, cancelable: true };
      const start = performance.now();
      for (let i = 0; i < 30; i++) {
        canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: 200, ...place }));
        await new Promise(requestAnimationFrame);
      }
      return (performance.now() - start) / 30;
    }""")
    assert spent < 500, f"{spent:.0f} ms a frame"
    start = time.monotonic()
    visit.search("layer777")
    assert "layer777" in visit.text("#details")
    assert time.monotonic() - start < 10
    visit.picture("deep")
    assert visit.complaints == []
    visit.page.close()


def test_hostile_names_are_text(browser: Any, tmp_path: Path) -> None:
    bad = "'><img src=x onerror=alert(1)></script><script>alert(2)</script>"
    net = torch.nn.Sequential()
    net.add_module(bad.replace(".", ""), torch.nn.Conv2d(3, 4, 3))
    x = torch.randn(1, 3, 8, 8)
    art = tosaic.compile(net, (x,), target="TOSA-1.0+INT", calibration=[x])
    art.save(tmp_path / "r.html", model=net, inputs=[x], title=bad)
    visit = Visit(browser, tmp_path / "r.html")
    visit.search("conv2d")
    assert "<img" in visit.text("#details")
    assert bad in visit.text("#title")
    assert visit.page.locator("img").count() == 0
    assert visit.complaints == []
    visit.page.close()


def test_a_report_of_refusals_shows_the_users_line(browser: Any, tmp_path: Path) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.bessel_j0(torch.relu(x) + 1)  # here

    x = torch.randn(1, 8)
    art = tosaic.compile(Net(), (x,), target="TOSA-1.0+FP")
    art.save(tmp_path / "r.html")
    visit = Visit(browser, tmp_path / "r.html")
    assert "torch.special.bessel_j0(torch.relu(x) + 1)  # here" in visit.text(".refusal .it")
    assert "What to do" in visit.text(".refusal")
    visit.page.click(".refusal h3 a")
    assert visit.text("#details h2") == "special_bessel_j0"
    assert re.search(r"Refusals\s*1", visit.text("#nav"))
    assert json.loads(visit.page.inner_html("#data"))["layers"] == []
    visit.picture("refusals")
    assert visit.complaints == []
    visit.page.close()


def test_the_table_of_layers_sorts_and_saves_all_of_it(browser: Any, transformer: Path) -> None:
    visit = Visit(browser, transformer)

    def cycles() -> list[int]:
        cells = visit.page.locator("#layerbody tbody td:nth-child(4)").all_inner_texts()
        return [int(cell.replace(",", "")) for cell in cells]

    first = cycles()
    head = visit.page.locator("#layerbody th", has_text="Cycles")
    head.locator("button").click()
    assert cycles() == sorted(first, reverse=True) != first
    assert head.get_attribute("aria-sort") == "descending"
    head.locator("button").click()
    assert cycles() == sorted(first)
    with visit.page.expect_download() as saving:
        visit.page.click("#csv")
    lines = list(csv.reader(Path(saving.value.path()).read_text(encoding="utf-8").splitlines()))
    assert lines[0][:4] == ["Layer", "Module", "Place", "Cycles"]
    assert [round(float(line[3])) for line in lines[1:]] == sorted(first)
    visit.page.locator("#layerbody tbody tr").last.click()
    assert visit.text("#details h2") == lines[-1][0]
    visit.picture("layers")
    assert visit.complaints == []
    visit.page.close()


def test_a_phone_shows_all_parts_within_its_width(browser: Any, transformer: Path) -> None:
    visit = Visit(browser, transformer)
    visit.page.set_viewport_size({"width": 390, "height": 844})
    visit.page.wait_for_timeout(300)
    parts = "main td, main th, .card, .refusal, .range, #map, main .switch"
    wide = f"""[...document.querySelectorAll("{parts}")]
      .filter((e) => e.offsetParent && e.getBoundingClientRect().right > innerWidth)
      .map((e) => e.outerHTML)"""
    assert visit.page.evaluate(wide) == []
    broken = """[...document.querySelectorAll(".word")]
      .flatMap((cell) => [...cell.childNodes].filter((part) => part.nodeType === 3))
      .filter((text) => {
        const range = document.createRange();
        range.selectNodeContents(text);
        return range.getClientRects().length > 1;
      }).map((text) => text.data)"""
    visit.page.evaluate("""document.querySelectorAll("#layerbody td.word:first-child")
      .forEach((cell) => { cell.textContent = "depthwiseconvolution"; })""")
    assert visit.page.evaluate(broken) == []  # names end a line where they have a dot or a bar
    assert visit.page.evaluate("document.documentElement.scrollWidth") == 390
    assert visit.page.locator("#nav a").first.is_visible()
    visit.page.locator("#nav a").last.click()
    assert visit.page.locator("#nav a").last.get_attribute("href") in visit.page.url
    assert visit.page.locator("#view button").first.inner_text() == "Modules"
    before = visit.shown("#canvas")
    visit.page.locator("#view button").first.click()
    assert visit.shown("#canvas") != before
    assert visit.complaints == []
    visit.page.close()


def test_many_graphs_make_no_endless_page(browser: Any, tmp_path: Path) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(12):
                x = torch.linalg.matrix_exp(torch.relu(x) * 0.1)
            return torch.relu(x)

    art = tosaic.compile(Net(), (torch.randn(1, 4, 4),), target="TOSA-1.0+FP")
    art.save(tmp_path / "r.html")
    assert len(art.report.delegates) == 13
    assert "5 more graphs" in str(art.report)
    visit = Visit(browser, tmp_path / "r.html")
    assert visit.page.locator("#arenas option").count() == 13
    before = visit.shown("#arena")
    visit.page.select_option("#arenas select", index=12)
    assert visit.shown("#arena") != before
    for part in ("#boundarybody", "#factsbody"):
        assert visit.page.locator(part).bounding_box()["height"] < 600
    assert visit.complaints == []
    visit.page.close()


def test_a_front_is_clicked_sorted_and_read_with_the_keyboard(browser: Any, tmp_path: Path) -> None:
    rows = [
        Row(
            n, "<b>net</b>", "", f"target-{n % 2}", {}, "int8", "tosaic compile net.py", f"{n}",
            score=0.9 - n / 100, low=0.8, high=0.95, cycles=1000 * (9 - n), sram=100 + n, flash=7,
            is_on_front=n < 4, group="cycles", checks=("defined for all inputs",),
        )
        for n in range(1, 7)
    ]  # fmt: skip
    wrong = Disagreement(5, "cat/5", 1, "2", 3, 1, picture(torch.rand(3, 8, 8)))
    scores = (Score("1", 0.9, 0.8, 0.95, 0.99), Score("2", 0.0, 0.0, 0.0, None, "no <i>engine</i>"))
    told = Evaluation("top1", 80, scores, (wrong,))
    write(tmp_path / "front.html", Sweep("top1", tuple(rows), (told,)), None)
    visit = Visit(browser, tmp_path / "front.html")
    visit.page.click("circle[data-number='5']")
    assert "5: <b>net</b>" in visit.text("#details h2")
    visit.page.focus("circle[data-number='2']")
    visit.page.keyboard.press("Enter")
    assert "7,000" in visit.text("#details")
    visit.page.click("#tablebody th:has-text('cycles') button")
    first = visit.page.inner_text("#tablebody tbody tr:first-child td:first-child")
    assert first == "6"
    visit.page.click("#axis button:has-text('SRAM')")
    assert visit.page.locator("circle").count() == 6
    assert "3 instead of 1" in visit.text("#wrongbody")
    assert visit.page.evaluate("document.querySelector('#wrongbody img').naturalWidth") == 8
    visit.picture("front")
    assert visit.complaints == []
    visit.page.close()


def test_networks_of_a_sweep_stand_beside_one_another(browser: Any, tmp_path: Path) -> None:
    names, targets, schemes = ("a", "b", "<i>c</i>"), ("one", "two"), ("int8", "a16w8")
    points = [(m, t, s) for m in names for t in targets for s in schemes]
    rows = [
        Row(
            n, m, "", t, {}, s, "tosaic compile", f"{n}", cycles=100 * (20 - n), flash=n, sram=n,
            milliseconds=20.0 - n, score=n / 20, group="cycles", is_on_front=n == 12,
            problem="refused" if n == 3 else "",
        )
        for n, (m, t, s) in enumerate(points, 1)
    ]  # fmt: skip
    write(tmp_path / "front.html", Sweep("top1", tuple(rows)), None)
    visit = Visit(browser, tmp_path / "front.html")
    cells = visit.page.locator("#comparebody tbody td").all_inner_texts()
    assert cells[:4] == ["19 ms", "18 ms", "–", "16 ms"]
    assert visit.page.locator("#comparebody td.best").all_inner_texts() == [
        "16 ms", "12 ms", "● 8 ms",
    ]  # fmt: skip
    visit.page.click("#comparebody thead tr:last-child button >> nth=1")  # a16w8 on the first
    order = visit.page.locator("#comparebody tbody th").all_inner_texts()
    assert order == ["<i>c</i>", "b", "a"]
    visit.page.click("#figure button:has-text('top1')")
    assert visit.page.locator("#comparebody td.best").all_inner_texts()[-1] == "● 60.00 %"
    visit.page.click("#comparebody td[data-number='6'] button")
    assert "6: b" in visit.text("#details h2")
    visit.page.set_viewport_size({"width": 390, "height": 844})
    visit.page.wait_for_timeout(200)
    assert visit.page.evaluate("document.documentElement.scrollWidth") == 390
    ratio = "(e => e.getBoundingClientRect())(document.querySelector('circle'))"
    assert visit.page.evaluate(f"Math.abs({ratio}.width - {ratio}.height)") < 0.1  # no ellipse
    visit.page.click("#details .close")
    assert not visit.page.locator("#details").is_visible()
    assert visit.complaints == []
    visit.page.close()
