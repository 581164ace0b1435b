"""Shared by the tests of plans: a case to plan, the elements of a page, the shape of a JSON file."""
import html.parser

from harness import CommandTest, Golden


class Page(html.parser.HTMLParser):
    """The elements of a page, and the text of its scripts."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.open_script = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.open_script = tag == "script"
        if self.open_script:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.open_script = self.open_script and tag != "script"

    def handle_data(self, data):
        if self.open_script:
            self.scripts[-1] += data


def shape(value):
    """The keys of an object, at every depth; of a list, those of its first entry."""
    if isinstance(value, dict):
        return {key: shape(entry) for key, entry in value.items()}
    return [shape(entry) for entry in value[:1]] if isinstance(value, list) else None


class PlanTest(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = Golden("qwen3", cls.directory)
        cls.nvme = cls.fresh_directory("nvme")

    def flags(self, **changes):
        return self.golden.flags(**{"nvme": f"{self.nvme}=64MiB", "device_memory": "4MiB", "global_batch_size": 8,
                                    "micro_batch_size": 2, "optimizer_tier": "nvme", **changes})
