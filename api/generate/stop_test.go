package generate

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestStopStrings(t *testing.T) {
	for _, c := range []struct {
		name    string
		stops   []string
		include bool
		pieces  []string
		want    string
		stopped bool
		at      int // piece that ends the text
	}{
		{"none", nil, false, []string{"a", "b"}, "ab", false, 0},
		{"in one piece", []string{"b"}, false, []string{"abc"}, "a", true, 0},
		{"over pieces", []string{"xyz"}, false, []string{"ax", "y", "zb"}, "a", true, 2},
		{"a beginning that was none", []string{"xyz"}, false, []string{"ax", "y", "b"}, "axyb", false, 0},
		{"held at the end", []string{"xyz"}, false, []string{"axy"}, "axy", false, 0},
		{"the earliest of two", []string{"c", "b"}, false, []string{"abc"}, "a", true, 0},
		{"the one that is complete first", []string{"bcd", "c"}, false, []string{"ab", "c"}, "ab", true, 1},
		{"a beginning within a beginning", []string{"aab"}, false, []string{"a", "a", "a", "b", "!"}, "a", true, 3},
		{"included", []string{"xyz"}, true, []string{"ax", "y", "zb"}, "axyz", true, 2},
		{"characters of several bytes", []string{"€é"}, false, []string{"a€", "€", "é"}, "a€", true, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := stopper{stops: c.stops, include: c.include}
			var got strings.Builder
			stopped, at := false, 0
			for i, p := range c.pieces {
				var out string
				out, stopped = s.add(p)
				got.WriteString(out)
				if at = i; stopped {
					break
				}
			}
			if !stopped {
				at = 0
				got.WriteString(s.flush())
			}
			if got.String() != c.want || stopped != c.stopped || at != c.at {
				t.Errorf("got %q, stopped %v at %d; want %q, %v at %d", got.String(), stopped, at, c.want, c.stopped, c.at)
			}
		})
	}
}

// TestStopStringsWholeText compares with a search in the text as it stands after each piece.
func TestStopStringsWholeText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringOfN(rapid.RuneFrom([]rune("abé")), 1, 4, -1)
		stops := rapid.SliceOfN(word, 1, 3).Draw(t, "stops")
		pieces := rapid.SliceOfN(word, 1, 12).Draw(t, "pieces")
		s := stopper{stops: stops}
		var sent, whole string
		for _, p := range pieces {
			whole += p
			out, stopped := s.add(p)
			sent += out
			at, _ := earliest(whole, stops)
			if stopped != (at >= 0) {
				t.Fatalf("stops %q, text %q: stopped is %v", stops, whole, stopped)
			}
			if stopped {
				if sent != whole[:at] {
					t.Fatalf("stops %q, text %q: sent %q", stops, whole, sent)
				}
				return
			}
			if !strings.HasPrefix(whole, sent) {
				t.Fatalf("stops %q, text %q: sent %q", stops, whole, sent)
			}
		}
		if sent += s.flush(); sent != whole {
			t.Fatalf("stops %q, text %q: sent %q", stops, whole, sent)
		}
	})
}
