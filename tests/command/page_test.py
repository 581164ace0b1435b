"""The pages of a run and of a plan in a real browser: the drawings, the effects of pointing, dragging, the wheel and
the buttons, light and dark, and a narrow window. The pages' data: report_test.py and plan_test.py."""
import json
import re
import shutil
import unittest

import browser
from browser import KEEP_TEXTS, LANE_HEIGHT, LANE_RIGHT, LANE_TOP, Canvas, Lanes
from harness import GOLDEN, CommandTest, Golden, arguments, run

DATA_OF_A_PAGE = re.compile(r'(<script type="application/json" id="data">)(.*?)(</script>)', re.DOTALL)
CURVE_LEFT, CURVE_RIGHT = 64, 12
TIER_LEFT, TIER_RIGHT, TIER_BOTTOM = 70, 8, 24
HUES = {"forward": "--c0", "backward": "--c3", "update": "--c2", "read": "--c6", "write": "--c5"}


def size(count):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1023.95:
            return f"{count:.1f} {unit}" if unit != "B" else f"{count} B"
        count /= 1024
    raise AssertionError("no tier of a test is so large")


class SlowPage(CommandTest):
    @classmethod
    def setUpClass(cls):
        program = browser.find()
        if program is None:
            raise unittest.SkipTest("there is no Chromium (tools/setup --with-browser)")
        super().setUpClass()
        cls.nvme = cls.fresh_directory("nvme")
        cls.golden = Golden("qwen3", cls.directory)
        cls.page = browser.Browser(program)
        cls.addClassCleanup(cls.page.close)
        cls.page.call("Page.addScriptToEvaluateOnNewDocument", source=KEEP_TEXTS)

    def setUp(self):
        self.page.faults.clear()
        self.page.resize(1280, 800)
        self.page.prefer("light")

    def flags(self, **changes):
        small = {"nvme": f"{self.nvme}=64MiB", "optimizer_tier": "nvme", "parameter_tier": "nvme",
                 "device_memory": "4MiB", "global_batch_size": 8, "micro_batch_size": 2, "train_iters": 4}
        return self.golden.flags(**{**small, **changes})

    def a_run(self):
        return self.train(self.flags(eval_data=self.golden.data, eval_interval=2)).path

    def report(self, directory):
        outcome = run("report", directory)
        self.assertEqual(outcome.code, 0, str(outcome))
        return directory / "report.html"

    def plan_page(self, code=0, **changes):
        file = self.fresh("page").with_suffix(".html")
        outcome = run("plan", *arguments(self.flags(format="html", out=file, **changes)))
        self.assertEqual(outcome.code, code, str(outcome))
        return file

    def open(self, file, change=None):
        """Shows a page, or a copy with changed data; returns its data."""
        text = file.read_text()
        data = json.loads(DATA_OF_A_PAGE.search(text).group(2))
        if change:
            change(data)
            file = self.fresh("changed").with_suffix(".html")
            file.write_text(DATA_OF_A_PAGE.sub(lambda found: found.group(1) + json.dumps(data) + found.group(3), text))
        self.page.open(file)
        self.check_silent()
        return data

    def check_silent(self):
        self.assertEqual(self.page.faults, [])

    def lanes(self, data):
        return Lanes(Canvas(self.page, self.page.run("pictures.length") - 1), data["timeline"])

    def titles(self):
        return self.page.run("[...document.querySelectorAll('h2')].map((title) => title.textContent)")

    # --- Elements of a page -------------------------------------------------------------------------------------------

    def check_elements(self, data):
        """The page has everything in the data, in the page's order."""
        tiers, lanes = ["Tiers over one step"] * ("tiers" in data), ["Lanes"] * ("timeline" in data)
        self.assertEqual(self.titles(), [curve["title"] for curve in data.get("curves", [])] + tiers + lanes +
                         [table["title"] for table in data["tables"]] + ["Command"] * ("command" in data))
        said = self.page.run("[document.title, document.querySelector('h1').textContent]")
        self.assertEqual(said, [data["title"]] * 2)
        tiles = self.page.run("[...document.querySelectorAll('.tile')].map((tile) => "
                              "[...tile.children].map((part) => part.textContent))")
        self.assertEqual(tiles, [[value, name] for name, value in data.get("tiles", [])])
        shown = self.page.run("[...document.querySelectorAll('tbody')].map((body) => "
                              "[...body.rows].map((row) => [...row.cells].map((cell) => cell.textContent)))")
        self.assertEqual(shown, [table["rows"] for table in data["tables"]])
        pictures = len(data.get("curves", [])) + len(data.get("tiers", {"list": []})["list"]) + len(lanes)
        self.assertEqual(self.page.run("document.querySelectorAll('canvas').length"), pictures)
        fetching = self.page.run("document.querySelectorAll('img, iframe, object, link, [src], [href]').length")
        self.assertEqual(fetching, 0)

    def check_curves(self, data):
        for index, curve in enumerate(data["curves"]):
            canvas = Canvas(self.page, index)
            steps = curve["x"]
            self.assertIn(f"step {steps[-1]}", " ".join(canvas.texts()))
            for step, value in zip(steps, curve["y"]):
                share = (step - steps[0]) / (steps[-1] - steps[0])
                said = canvas.tip(CURVE_LEFT + share * (canvas.width - CURVE_RIGHT - CURVE_LEFT) + 3, 90)
                self.assertRegex(said, rf"^step {step}: [-\d.,e]+$")
                self.assertAlmostEqual(float(said.split(": ")[1].replace(",", "")), value, delta=abs(value) * 1e-5)
                self.assertTrue(canvas.tip_is_in_the_window())

    def check_tiers(self, data):
        tiers, first = data["tiers"], len(data.get("curves", []))
        for index, tier in enumerate(tiers["list"]):
            canvas = Canvas(self.page, first + index)
            base, wide = canvas.height - TIER_BOTTOM, canvas.width - TIER_RIGHT - TIER_LEFT
            columns = len(tier["columns"][0])
            for at in (0, columns // 7, columns // 3, columns // 2 + 1):
                x = TIER_LEFT + (at + 0.5) / columns * wide
                levels = zip(tiers["categories"], (bytes_[at] for bytes_ in tier["columns"]))
                used = [(name, count) for name, count in levels if count > 0]
                said = canvas.tip(x, base - 20).split("\n")
                self.assertRegex(said[0], r"^at [\d.]+ (us|ms|s)$")
                self.assertEqual(said[1:], [f"{name}: {size(count)}" for name, count in reversed(used)])
                # The bottom is in the first category's colour, if it is thick and wide enough to see.
                bottom = tiers["categories"].index(used[0][0]) if used else 0
                least = min(tier["columns"][bottom][max(at - 1, 0):at + 2])
                if least / (tier["peak_bytes"] * 1.06) * (base - 8) > 6 and 0 < at:
                    hue = canvas.hue(f"--c{bottom}")
                    self.assertEqual(canvas.pixel(x, base - 3), hue)
            self.assertIsNone(canvas.tip(TIER_LEFT - 20, 60))
            self.assertIsNotNone(canvas.tip(TIER_LEFT + 20, 60))
            self.page.point(2, canvas.top + 60)
            self.assertFalse(self.page.run("tip.checkVisibility()"), "the tip stays though the pointer has left")

    def check_operations(self, lanes):
        """Each row tells about its widest operations and draws them in their colours."""
        canvas, timeline, ops = lanes.canvas, lanes.timeline, lanes.ops
        texts, told_of = canvas.texts(), 0
        for row, (lane, what) in enumerate(lanes.rows):
            name = timeline["lanes"][lane]
            self.assertIn(f"{name} {what}" if timeline["recorded"] else name, texts)
            wide = [id_ for id_ in lanes.ids(row) if lanes.width_of(id_, row) > 1.5]
            seen = [id_ for id_ in wide if lanes.beside(id_, row) <= 4]
            for id_ in seen[:3]:
                told_of += 1
                y, text = lanes.place(id_, row)
                self.assertIsNotNone(y, f"nothing tells of operation {id_}, {what}")
                kind, lines = timeline["kinds"][ops["kind"][id_]], text.split("\n")
                self.assertEqual(lines[0], f"operation {id_}: {kind}")
                self.assertEqual([line.split(":")[0] for line in lines[-len(lanes.whats):]], lanes.whats)
                unit, batch, count = ops["unit"][id_], ops["micro_batch"][id_], ops["bytes"][id_]
                told = [timeline["units"][unit]] * (unit >= 0) + [f"micro-batch {batch}"] * (batch >= 0)
                self.assertEqual(lines[1:-len(lanes.whats)], told + [size(count)] * (count > 0))
                if lanes.width_of(id_, row) > 4:
                    self.assertEqual(canvas.pixel(lanes.middle(id_, row), y), canvas.hue(HUES.get(kind, "--c7")))
                self.assertTrue(canvas.tip_is_in_the_window())
        self.assertGreater(told_of, len(lanes.rows))
        self.assertIsNone(canvas.tip(lanes.left - 10, lanes.heights(0)[0]))
        self.assertIsNone(canvas.tip(lanes.left + 10, canvas.height - 4))
        self.assertEqual([mark[1] for mark in timeline["marks"] if mark[1] not in texts], [])
        kinds = self.page.run("[...document.querySelectorAll('.legend')].pop().textContent")
        self.assertEqual(kinds, "".join(kind for kind in timeline["kinds"] if kind in HUES) + "other")

    # --- Actions of a person ------------------------------------------------------------------------------------------

    def widest(self, lanes, least=0.3, most=0.7):
        """The row and the number of the widest operation whose middle is in this part of the time shown."""
        def wide(row, id_):
            begin, end = lanes.span(id_, lanes.rows[row][1])
            central = least < (begin + end) / 2 / lanes.last < most
            return end - begin if central and lanes.beside(id_, row) <= 4 else 0
        found = [(row, id_) for row in range(len(lanes.rows)) for id_ in lanes.ids(row)]
        return max(found, key=lambda place: wide(*place))

    def press_button(self, name):
        find = f"[...document.querySelectorAll('button')].find((button) => button.textContent === '{name}')"
        self.page.run(f"{find}.scrollIntoView({{block: 'center'}})")
        rect = f"{find}.getBoundingClientRect()"
        left, top, width, height = self.page.run(f"(r => [r.left, r.top, r.width, r.height])({rect})")
        self.page.click(left + width / 2, top + height / 2)

    def check_shows(self, lanes, row, id_):
        """The operation is at its place in the part of the step that is shown. Returns its height."""
        y, _ = lanes.place(id_, row)
        self.assertIsNotNone(y, f"operation {id_} is not where it should be, from {lanes.begin} to {lanes.end}")
        return y

    def check_buttons(self, data):
        lanes = self.lanes(data)
        whole, shown, last = lanes.canvas.image(), self.widest(lanes), lanes.last
        self.press_button("closer")
        lanes = self.lanes(data)
        lanes.begin, lanes.end = last / 4, last * 3 / 4
        self.assertNotEqual(lanes.canvas.image(), whole)
        self.check_shows(lanes, *shown)
        self.press_button("further")
        self.assertEqual(lanes.canvas.image(), whole)
        self.press_button("further")
        self.assertEqual(lanes.canvas.image(), whole, "there is nothing beyond the whole step")
        for _ in range(40):
            self.press_button("closer")
        moments = [text for text in lanes.canvas.texts() if re.fullmatch(r"[\d.]+ (us|ms|s)", text)]
        self.assertGreater(len(moments), 2)
        self.assertEqual(len(set(moments)), len(moments), f"moments that cannot be told apart: {moments}")
        self.press_button("whole step")
        self.assertEqual(lanes.canvas.image(), whole)

    def check_dragging(self, data):
        self.press_button("closer")
        lanes = self.lanes(data)
        canvas, (row, id_), last = lanes.canvas, self.widest(lanes), lanes.last
        lanes.begin, lanes.end = last / 4, last * 3 / 4
        y = self.check_shows(lanes, row, id_)
        x, before = lanes.middle(id_, row), canvas.image()
        self.page.drag(*canvas.at(x, y), to=canvas.at(x + 60, y)[0])
        moved = 60 / (canvas.width - LANE_RIGHT - lanes.left) * last / 2
        lanes.begin, lanes.end = last / 4 - moved, last * 3 / 4 - moved
        self.check_shows(lanes, row, id_)
        self.assertNotEqual(canvas.image(), before)
        after = canvas.image()
        self.page.point(*canvas.at(x - 80, y))
        self.assertEqual(canvas.image(), after, "it moves though no button is down")
        for _ in range(3):  # not beyond the beginning
            self.page.drag(*canvas.at(lanes.left + 5, y), to=canvas.at(canvas.width - 20, y)[0])
        lanes.begin, lanes.end = 0, last / 2
        self.check_shows(lanes, *self.widest(lanes, 0.05, 0.45))
        before = canvas.image()
        # A menu's button moves nothing, nor does a pointer that the browser takes over, as it does to scroll by touch.
        self.page.run(f"{canvas.of}.setPointerCapture = () => {{}}")  # made-up pointers cannot be captured
        menu, taken = [("pointerdown", 2)], [("pointerdown", 0), ("pointercancel", -1)]
        for events in (menu, taken):
            for kind, button in (*events, ("pointermove", -1)):
                to_x, to_y = canvas.at(x - (50 if kind == "pointermove" else 0), y)
                made = f"new PointerEvent('{kind}', {{button: {button}, clientX: {to_x}, clientY: {to_y}}})"
                self.page.run(f"{canvas.of}.dispatchEvent({made})")
            self.assertEqual(canvas.image(), before, f"moved after {events}")
        self.press_button("whole step")

    def check_wheel(self, data):
        lanes = self.lanes(data)
        canvas, (row, id_) = lanes.canvas, self.widest(lanes)
        whole, x, y = canvas.image(), lanes.middle(id_, row), self.check_shows(lanes, row, id_)
        time = sum(lanes.span(id_, lanes.rows[row][1])) / 2
        for modifier in (browser.CTRL, browser.SHIFT):
            for turned, factor in ((-100, 0.8), (-100, 0.8), (100, 1.25)):
                self.page.wheel(*canvas.at(x, y), turned, modifier)
                lanes.begin, lanes.end = time - (time - lanes.begin) * factor, time + (lanes.end - time) * factor
                self.check_shows(lanes, row, id_)
                self.assertNotEqual(canvas.image(), whole)
        before, scrolled = canvas.image(), self.page.run("scrollY")
        self.page.wheel(*canvas.at(x, y), -100)
        self.page.wait_until(f"scrollY < {scrolled}", "the wheel alone does not scroll the page")
        self.assertEqual(canvas.image(), before, "the wheel alone does more than to scroll the page")
        self.press_button("whole step")
        self.assertEqual(canvas.image(), whole)

    def check_light_and_dark(self):
        images = "[...document.querySelectorAll('canvas')].map((canvas) => canvas.toDataURL())"
        colours = "[document.body, document.querySelector('section')].map((e) => getComputedStyle(e).backgroundColor)"
        light, light_colours = self.page.run(images), self.page.run(colours)
        self.page.prefer("dark")
        dark, dark_colours = self.page.run(images), self.page.run(colours)
        for a, b in zip([*light, *light_colours], [*dark, *dark_colours]):
            self.assertNotEqual(a, b)
        brightness = [sum(map(int, re.findall(r"\d+", colour))) for colour in (light_colours[0], dark_colours[0])]
        self.assertGreater(brightness[0], 3 * 200)
        self.assertLess(brightness[1], 3 * 60)
        self.page.prefer("light")
        self.assertEqual(self.page.run(images), light)

    def check_narrow(self, data):
        self.page.resize(390, 800)
        self.page.settle()
        wide = self.page.run("document.documentElement.scrollWidth")
        self.assertLessEqual(wide, 390, "the page is wider than the window")
        widths = self.page.run("[...document.querySelectorAll('canvas')].map((c) => [c.width, c.clientWidth])")
        for width, client in widths:
            self.assertEqual(width, client, "a picture is not drawn again for its new width")
            self.assertGreater(client, 250)
        lanes = self.lanes(data)
        row, id_ = self.widest(lanes)
        self.check_shows(lanes, row, id_)
        self.assertTrue(lanes.canvas.tip_is_in_the_window())
        marks = [mark[1] for mark in data["timeline"]["marks"]]
        for index in range(lanes.canvas.index + 1):
            for text, left, right in Canvas(self.page, index).placed_texts():
                self.assertGreaterEqual(left, lanes.left if text in marks else 0, f"{text} is cut off")
                self.assertLessEqual(right, lanes.canvas.width + 1, f"{text} is cut off")
        # A tip far to the right is not squeezed by the place where the tip was before.
        lanes, widths = self.lanes(data), []
        y = self.check_shows(lanes, row, id_)
        for last in (20, 380, 200):
            self.page.run(f"(tip.style.left = '{last}px')")
            lanes.canvas.tip(lanes.middle(id_, row) + last / 100, y)
            widths.append(self.page.run("tip.offsetWidth"))
        self.assertEqual(len(set(widths)), 1, f"the tip's width depends on where it was: {widths}")
        self.page.resize(1280, 800)
        self.page.settle()

    # --- Tests --------------------------------------------------------------------------------------------------------

    def check_what_it_answers(self, data):
        self.check_operations(self.lanes(data))
        self.check_buttons(data)
        self.check_dragging(data)
        self.check_wheel(data)
        self.check_light_and_dark()
        self.check_narrow(data)
        self.check_silent()

    def test_the_page_of_a_run(self):
        file = self.report(self.a_run())
        data = self.open(file)
        self.assertEqual([curve["title"] for curve in data["curves"]],
                         ["Loss", "Tokens a second", "Gradient norm", "Evaluation loss", "NVMe, MiB a second"])
        self.check_elements(data)
        self.check_curves(data)
        self.check_tiers(data)
        self.check_silent()

        def as_slow_as_any_machine(data):  # however busy this machine was just now
            ops = data["timeline"]["ops"]
            for at in ("_begin", "_end"):
                ops["recorded" + at] = [round(1.25 * time) for time in ops["planned" + at]]
        data = self.open(file, as_slow_as_any_machine)
        self.check_what_it_answers(data)

    def test_the_page_of_a_plan(self):
        evil = self.fresh_directory("x") / "</script><img src=x onerror=alert(1)>"
        shutil.copytree(GOLDEN / "qwen3", evil)
        data = self.open(self.plan_page(model=evil))
        self.assertIn("<img src=x", data["title"])
        self.check_elements(data)
        self.assertIn("spillway train", self.page.run("document.querySelector('pre').textContent"))
        self.check_tiers(data)
        self.check_what_it_answers(data)

    def test_pages_with_little_to_show(self):
        data = self.open(self.plan_page(code=3, device_memory="16KiB"))
        self.check_elements(data)
        self.assertIn("does not fit", self.page.run("document.body.innerText"))
        directory = self.a_run()
        (directory / "timeline.json").unlink()
        data = self.open(self.report(directory))
        self.assertFalse(data["timeline"]["recorded"])
        self.check_elements(data)
        self.check_operations(self.lanes(data))

        def none_is_finite(data):
            data["curves"][0]["y"] = [None] * 4
            data["curves"][1]["y"][2] = None
            data["curves"][2].update(x=[1], y=[2.5])
        self.open(self.report(directory), none_is_finite)
        self.assertIn("No value is finite.", self.page.run("document.querySelector('section').textContent"))
        gap = Canvas(self.page, 0)
        self.assertEqual(gap.tip(CURVE_LEFT + 2 / 3 * (gap.width - CURVE_RIGHT - CURVE_LEFT), 90), "step 3: not finite")
        self.assertEqual(Canvas(self.page, 1).tip(200, 90), "step 1: 2.5")
        self.check_silent()

    def test_how_figures_are_said(self):
        self.open(self.plan_page())
        for nanoseconds, said in ((0, "0.0 us"), (1234, "1.2 us"), (999_600, "1.00 ms"), (12_345_678, "12.3 ms"),
                                  (2.5e9, "2.50 s"), (999.7e9, "1000 s"), (1e12, "1000 s"), (12345.4e9, "12345 s"),
                                  (1e13, "10000 s")):
            self.assertEqual(self.page.run(f"seconds({nanoseconds})"), said)
        for count, said in ((0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1 << 20, "1.0 MiB"), (3 << 29, "1.5 GiB"),
                            (1 << 50, "1.0 PiB")):
            self.assertEqual(self.page.run(f"size({count})"), said)
        for values, said in (([0, 5e8, 1e9], ["0", "0.5 s", "1.0 s"]), ([2e6, 4e6], ["2 ms", "4 ms"]), ([0], ["0"]),
                             ([12_345_600, 12_345_800], ["12.3456 ms", "12.3458 ms"]),
                             ([200, 400], ["0.2 us", "0.4 us"])):
            self.assertEqual(self.page.run(f"moments({values})"), said)
        self.assertEqual(self.page.run("ticks(0, 10, 4)"), [0, 5, 10])
        self.assertEqual(self.page.run("ticks(3, 3, 4)"), [3])
        self.check_silent()

    def test_planted_faults_are_noticed(self):
        good = self.plan_page().read_text()

        def faults_of(text):
            file = self.fresh("planted").with_suffix(".html")
            file.write_text(text)
            self.page.faults.clear()
            self.page.open(file)
            canvases = self.page.run("document.querySelectorAll('canvas').length")
            if canvases > 0:
                canvas = Canvas(self.page, canvases - 1)
                canvas.tip(canvas.width / 2, LANE_TOP + LANE_HEIGHT / 2)
            faults, self.page.faults = self.page.faults, []
            return " ".join(faults)

        self.assertEqual(faults_of(good), "")
        strict, asked = "'use strict';", "http://127.0.0.1:9/x"
        for before, planted, said in ((strict, "nowhere();", "nowhere is not defined"),
                                      ("const hit = (event) => {", "tip.no.such();", "reading 'such'"),
                                      (strict, "console.error('a complaint');", "a complaint"),
                                      ('<div id="tip"></div>', f'<img src="{asked}">', asked),
                                      (strict, f"fetch('{asked}').catch(() => 0);", asked)):
            self.assertIn(before, good)
            self.assertIn(said, faults_of(good.replace(before, before + planted, 1)))


if __name__ == "__main__":
    unittest.main()
