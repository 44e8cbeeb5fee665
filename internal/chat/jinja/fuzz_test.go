package jinja

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzTemplate parses and renders any text within small limits: it must end, in an
// error of ours or in valid UTF-8, the same each time.
func FuzzTemplate(f *testing.F) {
	data, err := os.ReadFile("testdata/expressions.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		f.Add(strings.ReplaceAll(line, "⏎", "\n"))
	}
	files, _ := filepath.Glob("../../../testdata/golden/text/templates/files/*.jinja")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	vars := readDict(f, "testdata/variables.json")
	vars.Set("tools", nil)
	now := time.Date(2025, 3, 14, 15, 9, 26, 0, time.UTC)
	limits := Limits{Steps: 200_000, Alloc: 16 << 20, Output: 1 << 20}
	f.Fuzz(func(t *testing.T, source string) {
		template, err := Parse(source)
		if err != nil {
			wantOurs(t, err)
			return
		}
		got, err := template.Render(vars, now, limits)
		if err != nil {
			wantOurs(t, err)
		}
		if !utf8.ValidString(got) {
			t.Errorf("not UTF-8: %q", got)
		}
		if strings.Contains(source, "random") {
			return
		}
		if again, _ := template.Render(vars, now, limits); again != got {
			t.Errorf("two renderings differ: %q, %q", got, again)
		}
	})
}

func wantOurs(t *testing.T, err error) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Errorf("an error of another type: %T %v", err, err)
	}
}

// FuzzDecode decodes any bytes. Accepted texts must survive a round trip.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e3,null,true,"\u00e9\ud83d\ude00\n"]}`, `[]`, `"\ud800"`, `1e999`, `12345678901234567890`, `{"a":1,"a":2}`, ` [ 1 , 2 ] `} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := Decode(data)
		if err != nil {
			return
		}
		st := &state{limits: Limits{}.withDefaults()}
		w := jsonWriter{st: st, style: jsonStyle{item: ", ", colon: ": "}}
		if err := w.value(v, 0); err != nil {
			t.Fatal(err)
		}
		text := w.b.String()
		if strings.Contains(text, "Infinity") {
			return // a number beyond a float64
		}
		again, err := Decode([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if same, err := equal(st, v, again); err != nil || !same {
			t.Errorf("%s changed to %v, %v", data, text, err)
		}
	})
}
