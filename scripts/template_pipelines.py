"""Writes random Jinja templates and what transformers' environment renders of them, in the form of internal/chat/jinja/testdata/expressions.json.

    python scripts/template_pipelines.py SEED COUNT OUT.json.gz

The templates have macros, calls, namespaces, loops with conditions and recursion, whitespace control, slices, tests, methods, most filters, tojson and
strftime_now, in combinations that people would not write. Some fail in the reference: those must fail in Heft as well, with the same kind of error. Left out are
Heft's known differences: bytes, complex numbers, sets, whole numbers of more than 4,300 digits, the methods translate and maketrans, the text of a namespace within itself, and filter blocks whose filter returns no text: both fail, but Heft at once and Jinja when the whole text is joined, after another failure.
"""
import datetime
import gzip
import json
import pathlib
import random
import re
import resource
import signal
import sys

import jinja2
from transformers.utils import chat_template_utils

NOW = datetime.datetime(2025, 3, 14, 15, 9, 26)


class FrozenTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


chat_template_utils.datetime = FrozenTime
VARIABLES = json.loads((pathlib.Path(__file__).resolve().parents[1] / "internal/chat/jinja/testdata/variables.json").read_text())
TEXTS = ["''", "'a'", "' a b '", "'Ab-cD'", "\"it's\"", "'x\\ny'", "'é世🙂'", "'1'", "'-3.5'", "'0x1f'", "'<b>&\"'", "'a,b,,c'", "'ǆ ß İ'", "'tab\\tz'", "'%s|%d'", "'{} {0}'",
         "'a\\u2028b'", "'  '", "'none'", "'True'", "'aXbXc'"]
NUMBERS = ["0", "1", "2", "-1", "3", "7", "10", "1.5", "-0.0", "2.5", "1e3", "0.1", "1_000", "0b11", "0x1F", "1e-7", "1e16", "123456.789"]
ATOMS = ["loop", "self", "none", "true", "false", "undef", "d", "l", "users", "messages", "tree", "f1", "f2", "given", "x", "y", "s", "[]", "{}", "()"]
VALUES = ["undef", "d", "l", "users", "messages", "tree", "given", "s"]
NAMES = ["a", "b", "name", "age", "city", "tags", "role", "content", "nick", "n", "c", "0", "nope"]
FILTERS = {  # with the arguments that they may have
    "abs": [], "attr": ["'a'", "'name'"], "batch": ["2", "2, 'p'"], "capitalize": [], "center": ["9"], "count": [], "default": ["'D'", "'D', true"], "d": ["1"], "dictsort": ["", "by='value'", "false, 'key', true"],
    "e": [], "escape": [], "filesizeformat": ["", "true"], "first": [], "float": ["", "2.5"], "forceescape": [], "format": ["1", "'z'"], "groupby": ["'city'", "'age'", "attribute='nick', default='-'"], "indent": ["2", "1, true", "first=true, blank=true", "'> '"],
    "int": ["", "5", "0, 16", "base=2"], "items": [], "join": ["", "', '", "',', 'name'", "attribute='role'"], "last": [], "length": [], "list": [], "lower": [],
    "map": ["attribute='name'", "'upper'", "attribute='nope', default='dd'", "'int'", "'replace', 'a', 'z'", "attribute='tags.0'", "'string'"], "max": ["", "attribute='age'"], "min": ["", "true"], "pprint": [], 
    "reject": ["", "'odd'", "'in', [1,2]", "'none'"], "rejectattr": ["'nick'", "'age', 'gt', 30", "'name', 'in', ['Ann']"], "replace": ["'a', 'b'", "'a', 'zz', 1", "'', '-'"], "reverse": [], "round": ["", "1", "0, 'floor'", "2, 'ceil'", "-1"],
    "safe": [], "select": ["", "'even'", "'string'", "'defined'", "'gt', 1"], "selectattr": ["'nick'", "'role', 'eq', 'user'", "'age', '>', 26", "'tags'", "'nick', 'defined'"], "slice": ["2", "3, 'f'"],
    "sort": ["", "true", "attribute='age'", "attribute='city,name'", "reverse=true, case_sensitive=true"], "string": [], "striptags": [], "sum": ["", "attribute='age'", "start=5"], "title": [], "tojson": ["", "indent=2", "ensure_ascii=true", "sort_keys=true", "separators=(',', ':')", "indent=1, sort_keys=true"],
    "trim": ["", "'a'", "chars=' x'"], "truncate": ["4", "3, true", "5, false, '!'", "4, true, '…', 0"], "unique": ["", "true", "attribute='city'"], "upper": [], "urlencode": [], "urlize": [], "wordwrap": ["4", "3, false", "5, true, '|'"], "xmlattr": ["", "false"]}
TESTS = ["boolean", "callable", "defined", "undefined", "divisibleby(2)", "divisibleby 3", "eq 1", "equalto('a')", "even", "odd", "false", "true", "filter", "test", "float", "integer", "ge(1)", "gt 2", "in [1, 'a']", "iterable", "le 3", "lessthan(2)",
         "lower", "upper", "lt 5", "mapping", "ne('a')", "none", "number", "sameas none", "sequence", "string", "escaped", "greaterthan 0", "=='a'", "sameas(true)"]
METHODS = ["upper()", "lower()", "strip()", "strip('a ')", "lstrip()", "rstrip('\\n')", "split()", "split(',')", "split('X', 1)", "rsplit(',', 1)", "splitlines()", "splitlines(true)", "startswith('a')", "startswith(('a', ' '))", "endswith('b')", "replace('a', 'b')", "find('b')",
           "rfind('b')", "index('a')", "count('a')", "title()", "capitalize()", "swapcase()", "casefold()", "isdigit()", "isalpha()", "isspace()", "isupper()", "islower()", "isalnum()", "isnumeric()", "istitle()", "isidentifier()", "zfill(5)", "ljust(6, '.')", "rjust(6)", "center(7, '*')",
           "partition(',')", "rpartition('b')", "join(['p', 'q'])", "format(1, 2)", "format(**d)", "expandtabs(2)", "removeprefix('a')", "removesuffix('b')", "keys()", "values()", "items()", "get('a')", "get('nope', 4)", "items()|list", "append(1)", "pop()", "copy()", "update({})", "index(2)",
           "isascii()", "isprintable()", "isdecimal()", "is_integer()", "count(1)", "setdefault('a', 1)", "real"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">", "<=", ">=", "and", "or", "in", "not in"]
SHAPES = ["(<i> <sum> <i>)", "<i> <op> <i>"] + 3 * ["<c>|<filter>"] + ["<c>|<filter>|<filter>", "<c> is <test>"] + 2 * ["<c>.<method>"] + [
    "<var>[<slice>]", "(<text>)[<slice>]", "<c>[<slice>]", "(<var>|list)[<slice>]", "<c>[<number>]", "<c>['<name>']", "<c>[<i>]", "<c>.<name>", "[]", "[<i>]", "[<i>, <i>]", "[<i>, <i>, <i>,]", "{<text>: <i>}", "{<number>: <i>, <text>: <i>}", "(<i> if <i> else <i>)", "(<i> if <i>)", "not <i>", "-<c>", "+<c>",
    "(<i>,)", "(<i>, <i>)", "<c> ** 2", "range(<number>)", "range(<number>, <number>, <number>)", "strftime_now(<date>)", "dict(a=<i>, b=2)", "namespace(a=<i>).a", "cycler('p', 'q').next()", "joiner(',')()", "<macro>(<i>)", "<macro>(<i>, b=<i>)", "caller()",
    "raise_exception('no ' ~ <text>)"]
BLOCK_FILTERS = ["upper", "trim", "indent(2)", "replace('a', 'b')", "tojson", "escape", "title|trim"]
DATES = ["'%Y-%m-%d'", "'%d %b %Y'", "'%H:%M:%S %p'", "'%A %j %U %w'", "'%B %-d, %y'", "'%I %M %%'", "'%c'", "'%x %X'", "'%e %k'", "'%s'", "'é %d'", "'%Z%z'", "'%G-W%V-%u'", "'%q'", "'%D %T %R'", "'%f'"]


class Maker:
    def __init__(self, R):
        self.R, self.depth, self.macros = R, 0, 0

    def often(self, p):
        return self.R.random() < p

    def expression(self, depth=0):
        R = self.R
        if depth > 3 or self.often(0.3):
            return R.choice([R.choice(TEXTS), R.choice(TEXTS), R.choice(NUMBERS), R.choice(ATOMS), R.choice(ATOMS)])
        shape = R.choice(SHAPES)
        fill = {"i": lambda: self.expression(depth + 1), "c": lambda: self.closed(depth), "op": lambda: R.choice(BINARY), "sum": lambda: R.choice(BINARY[:7]), "filter": self.filter,
                "test": lambda: R.choice(["", "", "not "]) + R.choice(TESTS), "method": lambda: R.choice(METHODS), "slice": self.slice, "text": lambda: R.choice(TEXTS), "number": lambda: R.choice(NUMBERS[:7]),
                "var": lambda: R.choice(VALUES), "name": lambda: R.choice(NAMES), "date": lambda: R.choice(DATES), "macro": lambda: f"m{R.randrange(3)}"}
        return re.sub(r"<(\w+)>", lambda m: fill[m[1]](), shape)

    def filter(self):
        name = self.R.choice(list(FILTERS))
        arguments = self.R.choice(FILTERS[name] or [""])
        return name + (f"({arguments})" if arguments or self.often(0.2) else "")

    def slice(self):
        return ":".join(self.R.choice(["", "", "0", "1", "2", "-1", "-2", "5", "none"]) for _ in range(self.R.choice([2, 2, 3])))

    def closed(self, depth):
        e = self.expression(depth + 1)
        return e if e.isidentifier() or e[0] in "([{'\"" and e[-1] in ")]}'\"" and self.often(0.5) else f"({e})"

    def tag(self, body):
        return "{%" + self.R.choice(["", "", "-", "+"]) + f" {body} " + self.R.choice(["", "", "-", "+"]).replace("+", "") + "%}"

    def output(self):
        return "{{" + self.R.choice(["", "", "-"]) + f" {self.expression()} " + self.R.choice(["", "", "-"]) + "}}"

    def text(self):
        return self.R.choice(["", "\n", " ", "  \n  ", "a", "\n\n", "x \n", "\t", "|", "<é>", "{", "%", "#}", "{# note #}", "{#- c -#}", "\r\n"])

    def target(self):
        return self.R.choice(["x", "y", "s", "a, b", "x", "k, v"])

    def statement(self, depth):
        R, inside = self.R, lambda: self.body(depth + 1)
        kind = R.randrange(13)
        if kind in (0, 1):
            over = R.choice(["l", "users", "messages", "d.items()", "'héy'", "range(3)", "tree", "[[1, 2], [3, 4]]", "users|groupby('city')", self.expression(1)])
            condition = f" if {self.expression(1)}" if self.often(0.25) else ""
            recursive = " recursive" if self.often(0.15) else ""
            about = R.choice(["", "{{ loop.index }}", "{{ loop.first ~ loop.last }}", "{{ loop.revindex0 }}{{ loop.length }}", "{{ loop.previtem }}|{{ loop.nextitem }}", "{{ loop.cycle('o', 'e') }}", "{{ loop.changed(x) }}", "{{ loop.depth }}", "{% if loop.index > 1 %}{% break %}{% endif %}",
                              "{%- if loop.first -%}{% continue %}{%- endif %}", "{{ loop(x.c) }}" if recursive else ""])
            return self.tag(f"for {self.target()} in {over}{condition}{recursive}") + about + inside() + (self.tag("else") + inside() if self.often(0.2) else "") + self.tag("endfor")
        if kind in (2, 3):
            more = "".join(self.tag(f"elif {self.expression(1)}") + inside() for _ in range(R.choice([0, 0, 1])))
            return self.tag(f"if {self.expression(1)}") + inside() + more + (self.tag("else") + inside() if self.often(0.4) else "") + self.tag("endif")
        if kind == 4:
            return self.tag(f"set {self.target()} = {self.expression(1)}" + (f", {self.expression(2)}" if self.often(0.3) else ""))
        if kind == 5:
            return self.tag(f"set ns = namespace({R.choice(['', 'a=1', 'd', 'a=l, b=2'])})") + self.tag(f"set ns.{R.choice(['a', 'b'])} = {self.expression(1)}") + R.choice(["", "{{ ns.a }}", "{{ ns.b|default('-') }}"])
        if kind == 6:
            self.macros += 1
            name = f"m{self.macros % 3}"
            signature = R.choice(["a", "a, b=1", "a, b=x", "", "a='q', b=none"])
            use = R.choice(["{{ a }}", "{{ varargs }}", "{{ kwargs }}", "{{ caller() }}", "{{ b is defined }}", ""])
            return self.tag(f"macro {name}({signature})") + use + inside() + self.tag("endmacro") + R.choice(["", f"{{{{ {name}(1) }}}}", f"{{{{ {name}({self.expression(2)}, 2) }}}}", f"{{{{ {name}.name ~ {name}.arguments ~ {name}.catch_kwargs }}}}"])
        if kind == 7:
            return self.tag(f"call{R.choice(['', '', '(x)'])} m{R.randrange(3)}({R.choice(['', self.expression(2)])})") + inside() + self.tag("endcall")
        if kind == 8:
            return self.tag(f"filter {R.choice(BLOCK_FILTERS)}") + inside() + self.tag("endfilter")
        if kind == 9:
            return self.tag(f"set {R.choice(['x', 'y', 's | upper', 's | trim'])}") + inside() + self.tag("endset")
        if kind == 10:
            return R.choice([self.tag(f"with x = {self.expression(1)}, y = {self.expression(2)}") + inside() + self.tag("endwith"), self.tag("raw") + "{{ x }}" + self.text() + self.tag("endraw"), self.tag("generation") + inside() + self.tag("endgeneration")])
        if kind == 11:
            return self.tag(f"autoescape {R.choice(['true', 'true', 'false', 'not none', 'x', 'given', self.expression(2)])}") + inside() + self.tag("endautoescape")
        return self.tag(f"do {self.expression(1)}") if self.often(0.1) else self.output()

    def body(self, depth=0):
        parts = []
        for _ in range(self.R.choice([1, 1, 2, 3] if depth else [1, 2, 3, 4])):
            parts.append(self.text())
            parts.append(self.output() if depth > 2 or self.often(0.5) else self.statement(depth))
        return "".join(parts) + self.text()


def kind(error):
    for name, types in (("syntax", jinja2.TemplateSyntaxError), ("security", jinja2.exceptions.SecurityError), ("undefined", jinja2.UndefinedError), ("runtime", jinja2.exceptions.TemplateRuntimeError)):
        if isinstance(error, types):
            return name
    return "raise_exception" if type(error) is jinja2.TemplateError else "python"


def late(*_):
    raise TimeoutError


def unsettled(text):
    """Whether a text has addresses or what Python's own types call themselves."""
    return any(part in text.lower() for part in (" at 0x", "object>", "generator", "iterator", "generbtor", "iterbtor"))


def main():
    seed, count, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    R, cases = random.Random(f"template {seed}"), []
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    signal.signal(signal.SIGALRM, late)
    while len(cases) < count:
        case = {"template": Maker(R).body()}
        signal.alarm(2)
        try:
            case["expected"] = chat_template_utils._compile_jinja_template(case["template"]).render(**json.loads(json.dumps(VARIABLES)))
        except TimeoutError:
            continue
        except Exception as error:
            if R.random() < 0.85 or "Undefined'" in str(error) or "type Undefined" in str(error):  # a few failures are enough; Heft calls these undefined
                continue
            case["error"] = {"kind": kind(error), "type": type(error).__name__, "message": str(error)[:300]}
        finally:
            signal.alarm(0)
        if not unsettled(case.get("expected", "")):
            cases.append(case)
    with gzip.open(out, "wt") as f:
        json.dump({"now": NOW.isoformat(), "jinja2": jinja2.__version__, "cases": cases}, f)
    print(f"{len(cases)} templates, {sum('error' in c for c in cases)} of them fail")


main()
