"""Prints the tables of trainer/text/tokenizer_newer.cpp: the characters that the reference implementation (the
`tokenizers` package) knows and Unicode 14 does not, by category; and the characters that have a combining class or
compose in Unicode 14, but that the reference, whose normalization is older, leaves as they are. Usage:
newer_characters.py (with a Python whose unicodedata is that of Unicode 14: 3.11)"""
import sys
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
everything = "".join(map(chr, codes))


def ranges_of(value_of):
    """[(first, last, value)]: ranges of the code points that have a value."""
    ranges = []
    for code, value in sorted(value_of.items()):
        if ranges and ranges[-1][1] == code - 1 and ranges[-1][2] == value:
            ranges[-1] = (ranges[-1][0], code, value)
        else:
            ranges.append((code, code, value))
    return ranges


def table(entries):
    line = "   "
    for entry in entries:
        if len(line) + len(entry) + 2 > 130:
            print(line)
            line = "   "
        line += f" {entry},"
    print(line)


def stand_in(first, category):
    return "kHan" if first >= 0x20000 else f"k{category}{len(chr(first).encode())}"


if unicodedata.unidata_version != "14.0.0":
    sys.exit(f"unicodedata is of Unicode {unicodedata.unidata_version}, not 14")
known = {}
for category in CATEGORIES:
    for piece, _ in pre_tokenizers.Split(Regex(rf"\p{{{category}}}+"), "removed", True).pre_tokenize_str(everything):
        known.update((ord(character), category) for character in piece)
newer = {code: known[code] for code in codes if unicodedata.category(chr(code)) == "Cn" and code in known}
print("constexpr Range kNewer[] = {")
table(f"{{0x{first:x}, 0x{last:x}, {stand_in(first, category)}}}" for first, last, category in ranges_of(newer))
print("};")

normalize = normalizers.NFC().normalize_str
unknown = {}
for code in codes:
    character, combining = chr(code), unicodedata.combining(chr(code))
    if combining:
        pair = "\u0301" + character if combining < 230 else character + "\u0323"
        if normalize(pair) != unicodedata.normalize("NFC", pair):
            unknown[code] = True
    parts = unicodedata.normalize("NFD", character)
    if len(parts) > 1 and normalize(parts) != unicodedata.normalize("NFC", parts):
        unknown[ord(parts[-1])] = True
print("constexpr Interval kNotNormalized[] = {")
table(f"{{0x{first:x}, 0x{last:x}}}" for first, last, _ in ranges_of(unknown))
print("};")
