package loader

import (
	"strings"
	"testing"

	"github.com/heftai/heft/internal/jsonscan"
)

// TestSyntaxErrors: every fault has words and the place of the wrong byte.
func TestSyntaxErrors(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                               "expected an object at byte 0",
		`{x`:                               "expected a key in quotes at byte 1",
		`{"a"}`:                            "expected ':' at byte 4",
		`{"a":}`:                           "expected a value at byte 5",
		`{"a":nil}`:                        "expected a value at byte 5",
		`{"a":1]`:                          "expected ',' or '}' at byte 6",
		`{"a":[1}`:                         "expected ',' or ']' at byte 7",
		`{"a":1,}`:                         "trailing comma at byte 7",
		`{"a":"b`:                          "a string without an end at byte 7",
		`{"a":"b\`:                         "a string without an end at byte 8",
		"{\"a\":\"\t\"}":                   "control character in a string at byte 6",
		`{"a":"\x"}`:                       "unknown escape at byte 8",
		`{"a":"\u1g"}`:                     "expected four hexadecimal digits at byte 9",
		`{"a":"\ud83d"}`:                   "first half of a surrogate pair alone at byte 12",
		`{"\ude00":1}`:                     "second half of a surrogate pair alone at byte 8",
		`{"a":"\ud83d\u!!!!"}`:             "expected four hexadecimal digits at byte 14",
		`{"a":-01}`:                        "number with a leading zero at byte 8",
		`{"a":1.}`:                         "number without digits after the point at byte 7",
		`{"a":1e}`:                         "number without digits in its exponent at byte 7",
		`{"a":1e999}`:                      "number out of range at byte 10",
		`{"a":` + strings.Repeat("[", 127): "nested too deeply at byte 132",
	} {
		s := newScanner([]byte(text), false)
		err := s.Object("an object", func([]byte) error { return s.Skip() })
		if err == nil || err.Error() != want {
			t.Errorf("%q\n got %v\nwant %s", text, err, want)
		}
	}
	s := newScanner([]byte(`1e999`), true)
	if err := s.Skip(); err != nil {
		t.Errorf("a number out of range where any is fine: %v", err)
	}
}

// TestEveryJSONFaultHasAMessage: a kind of fault that is added to jsonscan must not get an empty message.
func TestEveryJSONFaultHasAMessage(t *testing.T) {
	for kind := jsonscan.Expected; kind <= jsonscan.NumberRange; kind++ {
		if kind == jsonscan.UnclosedValue {
			continue // of Balanced, which headers do not use
		}
		if err := explain(jsonscan.Fault{Kind: kind, What: "x", Want: 'x'}); strings.HasPrefix(err.Error(), " at") {
			t.Errorf("kind %d has no words", kind)
		}
	}
}
