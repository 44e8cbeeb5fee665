package jsonscan

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

type faultError struct{ Fault }

func (e faultError) Error() string { return fmt.Sprintf("kind %d at %d", e.Kind, e.Offset) }

func newScanner(text string) *Scanner {
	return &Scanner{Text: []byte(text), MaxDepth: 4, Explain: func(f Fault) error { return faultError{f} }}
}

func TestSkipFaultsHavePlaces(t *testing.T) {
	for text, want := range map[string]Fault{
		``:                  {Kind: ExpectedValue, Offset: 0},
		`nul`:               {Kind: ExpectedValue, Offset: 0},
		`-x`:                {Kind: ExpectedValue, Offset: 1},
		`{1}`:               {Kind: ExpectedKey, Offset: 1},
		`{"a" 1}`:           {Kind: Expected, Offset: 5},
		`{"a":1 "b"`:        {Kind: ExpectedComma, Offset: 7},
		`{"a":1,}`:          {Kind: TrailingComma, Offset: 7},
		`[1 2]`:             {Kind: ExpectedComma, Offset: 3},
		`[1, ]`:             {Kind: TrailingComma, Offset: 4},
		`[[[[[`:             {Kind: TooDeep, Offset: 5},
		`"ab`:               {Kind: Unterminated, Offset: 3},
		`"a\`:               {Kind: Unterminated, Offset: 3},
		"\"a\n\"":           {Kind: Control, Offset: 2},
		"\"\\n\x01\"":       {Kind: Control, Offset: 3},
		`"a\q"`:             {Kind: UnknownEscape, Offset: 4},
		`"a\u12x4"`:         {Kind: HexDigits, Offset: 6},
		`"\ud83d"`:          {Kind: LoneHigh, Offset: 7},
		`"\ud83d\u0041"`:    {Kind: LoneHigh, Offset: 13},
		`"\ud83d\u00zz"`:    {Kind: PairDigits, Offset: 11},
		`"\ude00"`:          {Kind: LoneLow, Offset: 7},
		`012`:               {Kind: LeadingZero, Offset: 3},
		`1.e2`:              {Kind: FractionDigits, Offset: 2},
		`1e+`:               {Kind: ExponentDigits, Offset: 3},
		`[1e999]`:           {Kind: NumberRange, Offset: 6},
		"\x00":              {Kind: ExpectedValue, Offset: 0},
		`{"a":[true,fals]}`: {Kind: ExpectedValue, Offset: 11},
	} {
		var got faultError
		if err := newScanner(text).Skip(); !errors.As(err, &got) || got.Kind != want.Kind || got.Offset != want.Offset {
			t.Errorf("%q: got %v, want kind %d at %d", text, err, want.Kind, want.Offset)
		}
	}
}

func TestObjectKeepsTheOrderOfKeys(t *testing.T) {
	s := newScanner(` { "b" : 1 , "a\n" : [ "x" , "\ud83d\ude00" ] , "b" : null } `)
	var got []string
	err := s.Object("an object", func(key []byte) error {
		got = append(got, string(key))
		switch s.Peek() {
		case '[':
			return s.Array("an array", func(int) error {
				v, err := s.String()
				got = append(got, string(v))
				return err
			})
		case 'n':
			null, err := s.Null()
			got = append(got, fmt.Sprint(null))
			return err
		}
		return s.Skip()
	})
	if want := "b|a\n|x|\U0001f600|b|true"; err != nil || strings.Join(got, "|") != want || !s.AtEnd() {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// TestLooseArrays: the element after the last comma is the function's own fault.
func TestLooseArrays(t *testing.T) {
	s := newScanner(`[1,]`)
	s.LooseArrays, s.Base = true, 100
	var got faultError
	err := s.Array("", func(int) error { _, err := s.Balanced(); return err })
	if !errors.As(err, &got) || got.Kind != ExpectedValue || got.Offset != 103 || got.Got != ']' {
		t.Errorf("got %+v, want ExpectedValue at 103", err)
	}
}

func TestEscapeHasItsBackslash(t *testing.T) {
	s := newScanner(`"abc\u00g0"`)
	s.Base = 10
	var got faultError
	if _, err := s.String(); !errors.As(err, &got) || got.Escape != 14 || got.Offset != 18 {
		t.Errorf("got %+v, want the backslash at 14 and the digit at 18", err)
	}
}

func TestBalanced(t *testing.T) {
	long := `"` + strings.Repeat("x", 100) + `\\\"` + strings.Repeat("y", 100) + `\\"`
	for text, want := range map[string]string{
		` {"a":[1,"]}"]} ,`: `{"a":[1,"]}"]}`,
		`12,3`:              `12`,
		`"a\"b" :`:          `"a\"b"`,
		long + `, 1`:        long,
		`[1}`:               `[1}`, // brackets of any kind
	} {
		if got, err := newScanner(text).Balanced(); err != nil || string(got) != want {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]Kind{
		``: ExpectedValue, `]`: ExpectedValue, `[1`: UnclosedValue, `["a`: Unterminated,
		`"` + strings.Repeat("x", 100) + `\"`: Unterminated, `"\`: Unterminated,
	} {
		var got faultError
		if _, err := newScanner(text).Balanced(); !errors.As(err, &got) || got.Kind != want {
			t.Errorf("%q: got %v, want kind %d", text, err, want)
		}
	}
}

func TestScannerAllocatesOnlyForEscapes(t *testing.T) {
	text := []byte(`{"name":"value","list":["\n","\t\u00e9",-1.5,12]}`)
	s := Scanner{Explain: func(f Fault) error { return faultError{f} }}
	member := func([]byte) error { _, err := s.Balanced(); return err }
	list := []byte(`["\n","\t\u00e9"]`)
	element := func(int) error { _, err := s.String(); return err }
	allocs := testing.AllocsPerRun(10, func() {
		s.Text, s.Pos = text, 0
		if err := s.Object("", member); err != nil {
			t.Fatal(err)
		}
		s.Text, s.Pos = list, 0
		if err := s.Array("", element); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations, want 0: the memory for escapes is used again", allocs)
	}
}

// FuzzSkip: Skip takes what encoding/json takes, and String decodes as it does.
func FuzzSkip(f *testing.F) {
	for _, text := range []string{`{"a":[1,-2.5e3,"\ud83d\ude00"]}`, ` "\u00e9\/" `, `[1,]`, `01`, `{"a":1,"a":2}`, `"\\\""`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := newScanner(text)
		s.MaxDepth, s.AnyRange = 1000, true
		err := s.Skip()
		var fault faultError
		if errors.As(err, &fault) && (fault.Kind == TooDeep || fault.Kind == LoneHigh || fault.Kind == LoneLow || fault.Kind == PairDigits) {
			return // encoding/json takes lone halves
		}
		if got, want := err == nil && s.AtEnd(), json.Valid([]byte(text)); got != want {
			t.Fatalf("%q: got %v (%v), encoding/json says %v", text, got, err, want)
		}
		if err != nil || !s.AtEnd() {
			return
		}
		again := newScanner(text)
		if raw, err := again.Balanced(); err != nil || string(raw) != strings.Trim(text, " \t\r\n") {
			t.Errorf("%q: the balanced value is %q (%v)", text, raw, err)
		}
		if strings.ToValidUTF8(text, "") == text && strings.HasPrefix(text, `"`) {
			var want string
			_ = json.Unmarshal([]byte(text), &want)
			if got, err := newScanner(text).String(); err != nil || string(got) != want {
				t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
			}
		}
	})
}

func BenchmarkStringEnd(b *testing.B) {
	for _, n := range []int{6, 30, 300, 30000} {
		text := []byte(`"` + strings.Repeat("x", n) + `"`)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				StringEnd(text, 0)
			}
		})
	}
}
