package toolcall

import (
	"encoding/json"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// checkEvents checks the order of events and the arguments of whole calls.
func checkEvents(t *testing.T, family *Family, list []Event) {
	t.Helper()
	open, arguments, calls := false, "", 0
	for _, e := range list {
		switch e.Kind {
		case Content, Reasoning:
			if open || e.Text == "" {
				t.Fatalf("%s: text %q in a call", family.Name(), e.Text)
			}
			continue
		case CallStart:
			if open || !isName(e.Name) {
				t.Fatalf("%s: call %q begins", family.Name(), e.Name)
			}
			open, arguments = true, ""
		case CallArguments:
			arguments += e.Text
		case CallEnd:
			if !open {
				t.Fatalf("%s: an end without a start", family.Name())
			}
			var object map[string]any
			err := json.Unmarshal([]byte(arguments), &object)
			if !e.Broken && err != nil {
				t.Fatalf("%s: arguments %q: %v", family.Name(), arguments, err)
			}
			open = false
		}
		if e.Index != calls {
			t.Fatalf("%s: index %d of call %d", family.Name(), e.Index, calls)
		}
		if e.Kind == CallEnd {
			calls++
		}
	}
	if open {
		t.Fatalf("%s: a call without an end", family.Name())
	}
}

// checkNothingLost checks that a text without calls comes out but for markers and
// the white space beside them.
func checkNothingLost(t *testing.T, family *Family, text string, list []Event) {
	t.Helper()
	var out strings.Builder
	for _, e := range list {
		if e.Kind != Content && e.Kind != Reasoning {
			return
		}
		out.WriteString(e.Text)
	}
	marks := slices.Clone(family.drops)
	for _, k := range family.thinks {
		marks = append(marks, k.open, k.close)
	}
	all, got := squeeze(text), squeeze(out.String())
	rest := all
	for _, c := range []byte(got) {
		i := strings.IndexByte(rest, c)
		if i < 0 {
			t.Fatalf("%s: %q gives %q", family.Name(), text, out.String())
		}
		rest = rest[i+1:]
	}
	// The missing text is as long as some markers.
	sums := make([]bool, len(all)-len(got)+1)
	sums[0] = true
	for n := range sums {
		for _, m := range marks {
			if k := len(squeeze(m)); n >= k && sums[n-k] {
				sums[n] = true
			}
		}
	}
	if !sums[len(all)-len(got)] {
		t.Fatalf("%s: %d bytes are lost: %q gives %q", family.Name(), len(all)-len(got), text, out.String())
	}
}

// squeeze is s without white space.
func squeeze(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 && isSpace(byte(r)) {
			return -1
		}
		return r
	}, s)
}

// FuzzParser: how a text is cut changes nothing; whole calls have JSON objects for
// arguments; without calls and reasoning's marks all bytes of the text come out.
func FuzzParser(f *testing.F) {
	names := Names()
	families := make([]*Family, len(names))
	for i, name := range names {
		families[i] = byName(f, name)
	}
	files, err := filepath.Glob("testdata/unseen/*.jinja")
	if err != nil || len(files) == 0 {
		f.Fatalf("no templates: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".jinja")
		families = append(families, Find(setOf(f, source(f, "unseen/"+name))))
	}
	for i, family := range families {
		f.Add(uint8(i), uint64(i), strings.Join(family.Markers(), `{"name": "f", "arguments": {"a": [1, "x"]}}`))
		f.Add(uint8(i), uint64(i), strings.Join(family.Markers(), "f"))
		f.Add(uint8(i), uint64(i), `[f(a=1, b='\x41', c={"k": None})] `+strings.Join(family.Markers(), ""))
	}
	f.Add(uint8(slices.Index(names, "deepseek-v3.1")), uint64(0), "<｜tool▁call▁begin｜>f<＜tool")
	for i, c := range parserCases() {
		f.Add(uint8(slices.Index(names, c.family)), uint64(i), c.text)
	}
	tools := testTools(f)
	f.Fuzz(func(t *testing.T, which uint8, seed uint64, text string) {
		if len(text) > 4<<10 {
			return // longer ones find nothing more
		}
		family := families[int(which)%len(families)]
		o := Options{Tools: tools, Prompt: []string{"", "<think>\n", "<|start|>assistant", "x:"}[seed%4]}
		whole := events(family, o, text)
		pieces := events(family, o, cut(rand.New(rand.NewPCG(seed, 1)), text)...)
		if !reflect.DeepEqual(whole, pieces) {
			t.Fatalf("%s: whole  %s\npieces %s", family.Name(), notation(whole), notation(pieces))
		}
		checkEvents(t, family, whole)
		for _, e := range family.NewParser(o).Feed(text) {
			if utf8.ValidString(text) && !utf8.ValidString(e.Text) {
				t.Fatalf("%s: %q is half a character", family.Name(), e.Text)
			}
		}
		checkNothingLost(t, family, text, whole)
	})
}
