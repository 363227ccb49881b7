"""Every table and key of a TOML file is found on its line."""

import tomllib

import pytest

from sparkswarm.runfile.cli import example_file
from sparkswarm.runfile.lines import line_numbers

TEXT = '''# a comment = 1
top = 1 # and [another]
"quoted.name" = """
inner = 2
[no table]
""" # after it
dotted.key = [1, [2], "]", """x = 1
"""]

[swarm]
grid = [
  10, # ten
  20,
]
literal = 'a \\'
inline = { y = 1, z.w = { v = "}" } }
[ spaced . "a b" ]
when = 1979-05-27T07:32:00Z
[[list]]
items = [{ p = 1 }, { p = 2 }]
last = true'''

LINES = {
    ("top",): 2,
    ("quoted.name",): 3,
    ("dotted",): 7,
    ("dotted", "key"): 7,
    ("swarm",): 10,
    ("swarm", "grid"): 11,
    ("swarm", "literal"): 15,
    ("swarm", "inline"): 16,
    ("swarm", "inline", "y"): 16,
    ("swarm", "inline", "z"): 16,
    ("swarm", "inline", "z", "w"): 16,
    ("swarm", "inline", "z", "w", "v"): 16,
    ("spaced",): 17,
    ("spaced", "a b"): 17,
    ("spaced", "a b", "when"): 18,
    ("list",): 19,
    ("list", "items"): 20,
    ("list", "last"): 21,
}


def test_every_name_has_its_line():
    tomllib.loads(TEXT)
    assert line_numbers(TEXT) == LINES


def paths(table, prefix=()):
    for name, value in table.items():
        yield (*prefix, name)
        if isinstance(value, dict):
            yield from paths(value, (*prefix, name))


@pytest.mark.parametrize(
    "text",
    [
        example_file(),
        "",
        "a = ''",
        "a=1\r\nb = 2\r\n",
        'a = """"quotes" at the ends""""\nb = 1',
        "a = '''''two''''' \nb = 1",
        'a = "\\"" # "\nb = {}\nc = []\n[d]',
        "a.b.c = 1\na.b.d = -inf\na.e = 0x1F\n[f]\n'g h'.i = 1e3",
    ],
)
def test_names_are_those_that_python_reads(text):
    data = tomllib.loads(text)
    assert set(line_numbers(text)) == set(paths(data))
