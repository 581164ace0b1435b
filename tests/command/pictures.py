"""The pictures of a page as a person sees them: places, the tip at a point, colours and words.

Not here: the browser (browser.py), what is expected (page_test.py). Standard library only. Places are page.js's own.
"""
import hashlib
import re

# Texts on a canvas are pixels, so each canvas keeps the texts drawn on it, with their left and right ends.
KEEP_TEXTS = """
    const drawn = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
      const width = this.measureText(text).width;
      const begin = x - {left: 0, center: width / 2, right: width}[this.textAlign];
      (this.canvas.texts ||= []).push([String(text), begin, begin + width]);
      return drawn.call(this, text, x, y);
    };
"""
LANE_TOP, LANE_HEIGHT, LANE_GAP, LANE_RIGHT = 18, 30, 6, 8


class Canvas:
    """A picture of the page, by its index among all; points are relative to it."""

    def __init__(self, page, index):
        self.page, self.index = page, index
        self.of = f"document.querySelectorAll('canvas')[{index}]"
        page.run(f"{self.of}.scrollIntoView({{block: 'center'}})")
        page.settle()
        self.left, self.top, self.width, self.height = page.run(
            f"(r => [r.left, r.top, r.width, r.height])({self.of}.getBoundingClientRect())")

    def at(self, x, y):
        return self.left + x, self.top + y

    def tip(self, x, y):
        """The tip at a point; None if there is none."""
        self.page.point(*self.at(x, y))
        return self.page.run("tip.checkVisibility() ? tip.textContent : null")

    def tip_is_in_the_window(self):
        return self.page.run("(r => r.left >= 0 && r.top >= 0 && r.right <= innerWidth && r.bottom <= innerHeight)"
                             "(tip.getBoundingClientRect())")

    def image(self):
        """A digest that is equal for two images if all their pixels are."""
        return hashlib.sha256(self.page.run(f"{self.of}.toDataURL()").encode()).hexdigest()

    def placed_texts(self):
        """[text, left, right]"""
        return self.page.run(f"({self.of}.texts = [], pictures[{self.index}].paint(), {self.of}.texts)")

    def texts(self):
        return [text for text, _, _ in self.placed_texts()]

    def pixel(self, x, y):
        return self.page.run(
            "(to => (to.drawImage(%s, %d, %d, 1, 1, 0, 0, 1, 1), [...to.getImageData(0, 0, 1, 1).data]))"
            "(document.createElement('canvas').getContext('2d', {willReadFrequently: true}))"
            % (self.of, round(x), round(y)))

    def hue(self, name):
        """A colour of the page's style, as pixels have it."""
        return [int(digits, 16) for digits in re.findall("[0-9a-fA-F]{2}", self.page.run(f"colour('{name}')"))] + [255]


class Lanes:
    """The picture of operations over time, with the part of the step that it shows now."""

    def __init__(self, canvas, timeline):
        self.canvas, self.timeline, self.ops = canvas, timeline, timeline["ops"]
        self.whats = ["planned", "recorded"] if timeline["recorded"] else ["planned"]
        self.left = 132 if timeline["recorded"] else 82
        self.rows = [(lane, what) for lane in range(len(timeline["lanes"])) for what in self.whats]
        self.last = max(max(self.ops[what + "_end"]) for what in self.whats)
        self.begin, self.end = 0, self.last

    def span(self, id_, what):
        return self.ops[what + "_begin"][id_], self.ops[what + "_end"][id_]

    def ids(self, row):
        """The row's operations that ran, the longest first."""
        lane, what = self.rows[row]
        length = {id_: self.ops[what + "_end"][id_] - self.ops[what + "_begin"][id_]
                  for id_, at in enumerate(self.ops["lane"]) if at == lane}
        return sorted((id_ for id_ in length if length[id_] > 0), key=length.get, reverse=True)

    def x(self, time):
        return self.left + (time - self.begin) / (self.end - self.begin) * (self.canvas.width - LANE_RIGHT - self.left)

    def middle(self, id_, row):
        return self.x(sum(self.span(id_, self.rows[row][1])) / 2)

    def heights(self, row):
        """Four heights of a row, so that each of its tracks (at most four) contains at least one of them."""
        return [LANE_TOP + row * (LANE_HEIGHT + LANE_GAP) + LANE_HEIGHT * (2 * quarter + 1) / 8 for quarter in range(4)]

    def beside(self, id_, row):
        """Number of the row's operations that run while this one does, including itself. A row shows four at a time."""
        begin, end = self.span(id_, self.rows[row][1])
        spans = [self.span(other, self.rows[row][1]) for other in self.ids(row)]
        return sum(of[0] < end and begin < of[1] for of in spans)

    def width_of(self, id_, row):
        begin, end = self.span(id_, self.rows[row][1])
        return self.x(end) - self.x(begin)

    def place(self, id_, row):
        """The height at which the picture tells about the operation, at its middle, and the text."""
        for y in self.heights(row):
            text = self.canvas.tip(self.middle(id_, row), y)
            if text and text.startswith(f"operation {id_}:"):
                return y, text
        return None, None
