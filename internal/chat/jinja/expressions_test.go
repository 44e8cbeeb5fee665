package jinja

import (
	"errors"
	"testing"
	"time"

	"github.com/heftai/heft/internal/golden"
)

// TestExpressions renders every line of testdata/expressions.txt and compares with
// what Jinja2 made of it (scripts/make-template-fixtures.py). Where that failed we
// must fail, with the same message if the template raised it.
func TestExpressions(t *testing.T) {
	vars := readDict(t, "testdata/variables.json")
	root := readDict(t, "testdata/expressions.json")
	stamp, _ := root.Get("now")
	now, err := time.Parse("2006-01-02T15:04:05", stamp.(string))
	if err != nil {
		t.Fatal(err)
	}
	cases, _ := root.Get("cases")
	for _, c := range cases.(*List).Items {
		source, _ := c.(*Dict).Get("template")
		got, err := renderWith(source.(string), vars, now)
		if want, ok := c.(*Dict).Get("expected"); ok {
			if err != nil || got != want {
				t.Errorf("%s\n got %q, %v\nwant %q", source, got, err, want)
			}
			continue
		}
		failure, _ := c.(*Dict).Get("error")
		checkFailure(t, source.(string), err, failure.(*Dict))
	}
}

// checkFailure wants an error of the class Jinja2 reports. Python finds a few
// faults only when it compiles what Jinja2 has made: those are syntax errors here;
// and where Python runs out of stack we report a limit.
func checkFailure(t *testing.T, source string, err error, want *Dict) {
	t.Helper()
	kind, _ := want.Get("kind")
	message, _ := want.Get("message")
	var e *Error
	if !errors.As(err, &e) {
		t.Errorf("%s\n got error %v\nwant %s: %s", source, err, kind, message)
		return
	}
	same := e.Kind == Kind(kind.(string)) || kind == "python" && (e.Kind == KindSyntax || e.Kind == KindLimit)
	if !same || e.Kind == KindRaise && e.Message != message {
		t.Errorf("%s\n got %s: %s\nwant %s: %s", source, e.Kind, e.Message, kind, message)
	}
}

func renderWith(source string, vars *Dict, now time.Time) (string, error) {
	template, err := Parse(source)
	if err != nil {
		return "", err
	}
	return template.Render(vars, now, Limits{})
}

func readDict(t testing.TB, path string) *Dict {
	t.Helper()
	data, err := golden.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	v, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return v.(*Dict)
}
