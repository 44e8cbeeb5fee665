package jinja

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestHostileTemplates renders templates that ask for endless work or memory: each
// must end with an error, soon.
func TestHostileTemplates(t *testing.T) {
	for name, source := range hostileTemplates() {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			template, err := Parse(source)
			if err != nil {
				t.Fatal(err)
			}
			got, err := template.Render(NewDict(), time.Now(), Limits{Steps: 400_000, Alloc: 64 << 20, Output: 8 << 20})
			if took := time.Since(start); took > time.Minute {
				t.Errorf("took %v", took)
			}
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("no error, but %.100q; %v", got, err)
			}
			if e.Kind != KindLimit && e.Kind != KindPython {
				t.Errorf("want a limit, got %s: %s", e.Kind, e.Message)
			}
		})
	}
}

// TestHostileSource parses sources made to exhaust the parser.
func TestHostileSource(t *testing.T) {
	const n = 20000
	for name, source := range map[string]string{
		"parentheses":  "{{ " + strings.Repeat("(", n) + "1" + strings.Repeat(")", n) + " }}",
		"lists":        "{{ " + strings.Repeat("[", n),
		"dicts":        "{{ " + strings.Repeat("{1:", n),
		"minus":        "{{ " + strings.Repeat("-", n) + "1 }}",
		"not":          "{{ " + strings.Repeat("not ", n) + "1 }}",
		"plus":         "{{ 1" + strings.Repeat("+1", n) + " }}",
		"filters":      "{{ 1" + strings.Repeat("|e", n) + " }}",
		"tests":        "{{ 1" + strings.Repeat(" is odd", n/2) + " }}",
		"attributes":   "{{ a" + strings.Repeat(".a", n) + " }}",
		"calls":        "{{ a" + strings.Repeat("()", n) + " }}",
		"conditions":   "{{ 1" + strings.Repeat(" if 1 else 1", n/4) + " }}",
		"bare ifs":     "{{ 1" + strings.Repeat(" if 1", n/4) + " }}",
		"blocks":       strings.Repeat("{% if 1 %}", n/4),
		"loops":        strings.Repeat("{% for a in b %}", n/4),
		"targets":      "{% set " + strings.Repeat("(", n) + "a",
		"filter block": "{% filter e" + strings.Repeat("|e", n) + " %}{% endfilter %}",
		"too long":     strings.Repeat("a", maxSource+1),
		"names":        manyNames(),
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, err := Parse(source)
			if took := time.Since(start); took > time.Minute {
				t.Errorf("took %v", took)
			}
			var e *Error
			if !errors.As(err, &e) || e.Kind != KindSyntax {
				t.Errorf("want a syntax error, got %v", err)
			}
		})
	}
}

// manyNames has thousands of names before thousands of conditions, each of which
// has to know them all.
func manyNames() string {
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, "{{ a%d }}", i)
	}
	b.WriteString(strings.Repeat("{% if 1 %}{% set b = 1 %}{% endif %}", 20000) + "{{")
	return b.String()
}

// TestMemoryIsBounded checks that the limit on memory is one on real memory.
func TestMemoryIsBounded(t *testing.T) {
	source := "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = ns.x + [[i] * 1000] %}{% endfor %}"
	template, err := Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	if _, err := template.Render(NewDict(), time.Now(), Limits{Alloc: 64 << 20}); err == nil {
		t.Fatal("no error")
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 256<<20 {
		t.Errorf("allocated %d MiB under a limit of 64", got>>20)
	}
}

func TestLimitsOfTheCallerApply(t *testing.T) {
	template, err := Parse("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(depth) }}{% for i in range(turns) %}x{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		depth, turns int64
		limits       Limits
		fails        bool
	}{
		{depth: 150, turns: 100},
		{depth: 150, turns: 100, limits: Limits{Depth: 100}, fails: true},
		{turns: 1000},
		{turns: 1000, limits: Limits{Steps: 500}, fails: true},
		{turns: 1000, limits: Limits{Output: 500}, fails: true},
		{turns: 1000, limits: Limits{Alloc: 500}, fails: true},
	} {
		_, err := template.Render(NewDict("depth", c.depth, "turns", c.turns), time.Now(), c.limits)
		var e *Error
		if c.fails != (err != nil) || err != nil && (!errors.As(err, &e) || e.Kind != KindLimit) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// hostileTemplates would take memory or time without bound.
func hostileTemplates() map[string]string {
	loop := func(body string) string { return "{% for i in range(100000) %}" + body + "{% endfor %}" }
	grow := func(start, step string) string {
		return "{% set ns = namespace(x=" + start + ") %}" + loop("{% set ns.x = "+step+" %}") + "{{ ns.x|length }}"
	}
	return map[string]string{
		"nested loops":        loop(loop("")),
		"doubling text":       grow("'ab'", "ns.x ~ ns.x"),
		"doubling list":       grow("[1]", "ns.x + ns.x"),
		"quadratic text":      grow("'a' * 1000000", "ns.x ~ 'b'"),
		"replace":             grow("'a'", "ns.x.replace('a', 'aa')"),
		"join":                grow("'ab'", "ns.x.join(ns.x)"),
		"repeat":              "{{ 'a' * 9999999999 }}",
		"repeat list":         "{{ ([1] * 9999999999)|length }}",
		"center":              "{{ 'a'|center(9999999999) }}",
		"ljust":               "{{ 'a'.ljust(9999999999) }}",
		"zfill":               "{{ 'a'.zfill(9999999999) }}",
		"percent width":       "{{ '%999999999d' % 1 }}",
		"format width":        "{{ '{:999999999}'.format(1) }}",
		"percent star":        "{{ '%*d' % (999999999, 1) }}",
		"indent":              "{{ ('a\\n' * 100000)|indent(100000) }}",
		"expandtabs":          "{{ ('\\t' * 1000000).expandtabs(1000000) }}",
		"batch fill":          "{{ [1]|batch(9999999999, 0)|list }}",
		"slice":               "{{ [1]|slice(9999999999)|list|length }}",
		"range":               "{{ range(100001)|length }}",
		"power":               "{{ 10 ** 100000 }}",
		"huge power":          "{{ 3 ** 9223372036854775807 }}",
		"output":              loop("{{ 'a' * 1000000 }}"),
		"json":                "{% set ns = namespace(x=[1]) %}" + loop("{% set ns.x = [ns.x, ns.x] %}{{ ns.x|tojson|length }}"),
		"repr":                "{% set ns = namespace(x=[1]) %}" + loop("{% set ns.x = [ns.x, ns.x] %}") + "{{ ns.x }}",
		"equal":               "{% set ns = namespace(x=[1], y=[1]) %}" + loop("{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}") + "{{ ns.x == ns.y }}",
		"less":                "{% set ns = namespace(x=[1], y=[1]) %}" + loop("{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}") + "{{ ns.x < ns.y }}",
		"deep key":            "{% set ns = namespace(x=(1,)) %}" + loop("{% set ns.x = (ns.x,) %}") + "{{ {ns.x: 1} }}",
		"namespace in itself": "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
		"pprint":              "{% set ns = namespace(x=[1]) %}" + loop("{% set ns.x = [ns.x] %}") + "{{ ns.x|pprint }}",
		"chained generators":  "{% set ns = namespace(x=[1]) %}" + loop("{% set ns.x = ns.x|select %}") + "{{ ns.x|list }}",
		"chained maps":        "{% set ns = namespace(x=[1]) %}" + loop("{% set ns.x = ns.x|map('string') %}") + "{{ ns.x|list }}",
		"recursive macro":     "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
		"forked macro":        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(100) }}",
		"recursive loop":      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
		"recursive block":     "{% block a %}{{ self.a() }}{% endblock %}",
		"recursive caller":    "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}",
		"strip set":           "{% set s = 'a' * 3000000 %}{% set c = 'b' * 3000000 ~ 'a' %}" + loop("{{ s.strip(c) }}"),
		"search":              "{% set s = 'a' * 1000000 %}" + loop("{{ s.count('b') }}{{ 'b' in s }}"),
		"sort":                "{% set s = ('ab' * 40000)|list %}" + loop("{% set x = s|sort %}"),
		"upper":               "{% set s = 'é' * 100000 %}" + loop("{% set x = s.title() %}"),
		"attribute path":      "{% set p = 'a.' * 1000000 %}{{ range(100000)|map(attribute=p, default=1)|list }}",
		"tuple keys":          "{% set k = range(500)|list %}{% set d = {(1, 2): 3} %}" + loop(loop("{% set x = d[(1, 2)] %}")),
		"urlize":              "{{ (('(' * 1000000) ~ 'a' ~ (')' * 1000000))|urlize|length }}" + loop(loop("")),
	}
}
